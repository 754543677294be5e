//! Becoming another user once the sockets are bound and the files open.

use nix::unistd::{Gid, Group, Uid, User, getgroups, initgroups, setgid, setgroups, setuid};
use weir_server::StartError;

/// Takes on the identity that the configuration asks for, for good.
///
/// # Errors
/// If there is no such user or group, or the process may not change its identity.
pub(crate) fn drop_to(user: Option<&str>, group: Option<&str>) -> Result<(), StartError> {
    let error = |who: &str, cause: String| StartError::Privileges { user: who.to_owned(), cause };
    let found_user = user.map(|name| find_user(name).map_err(|c| error(name, c))).transpose()?;
    let found_group = group.map(|name| find_group(name).map_err(|c| error(name, c))).transpose()?;
    let gid = found_group.or(found_user.as_ref().map(|user| user.gid));
    if let Some(gid) = gid {
        let who = group.or(user).unwrap_or_default();
        let groups = match &found_user {
            Some(user) => initgroups(&user.cname(), gid),
            None => setgroups(&[gid]),
        };
        groups
            .and_then(|()| setgid(gid))
            .map_err(|e| error(who, format!("{e}; only root can change its groups")))?;
    }
    if let (Some(user), Some(name)) = (&found_user, user) {
        setuid(user.uid).map_err(|e| error(name, format!("{e}; only root can change users")))?;
        // Root that can be taken back was never given up.
        if !user.uid.is_root() && setuid(Uid::from_raw(0)).is_ok() {
            return Err(error(name, "root privileges could be regained".to_owned()));
        }
        let groups = getgroups().map_or(0, |groups| groups.len());
        tracing::info!(user = name, uid = user.uid.as_raw(), groups, "privileges dropped");
    }
    Ok(())
}

/// Whether there are such accounts.
///
/// # Errors
/// The one that there is not.
pub(crate) fn check(user: Option<&str>, group: Option<&str>) -> Result<(), StartError> {
    let error = |who: &str, cause: String| StartError::Privileges { user: who.to_owned(), cause };
    user.map(|name| find_user(name).map_err(|cause| error(name, cause))).transpose()?;
    group.map(|name| find_group(name).map_err(|cause| error(name, cause))).transpose()?;
    Ok(())
}

struct Identity {
    name: String,
    uid: Uid,
    gid: Gid,
}

impl Identity {
    /// The name for initgroups. User names hold no NUL; one that does names nobody.
    fn cname(&self) -> std::ffi::CString {
        std::ffi::CString::new(self.name.as_str()).unwrap_or_default()
    }
}

fn find_user(name: &str) -> Result<Identity, String> {
    let found = match name.parse() {
        Ok(number) => User::from_uid(Uid::from_raw(number)),
        Err(_) => User::from_name(name),
    };
    let user = found.map_err(|e| e.to_string())?.ok_or("there is no such user")?;
    Ok(Identity { name: user.name, uid: user.uid, gid: user.gid })
}

fn find_group(name: &str) -> Result<Gid, String> {
    let found = match name.parse() {
        Ok(number) => return Ok(Gid::from_raw(number)),
        Err(_) => Group::from_name(name),
    };
    let group = found.map_err(|e| e.to_string())?.ok_or("there is no such group")?;
    Ok(group.gid)
}
