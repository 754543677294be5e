//! Becoming another user once the sockets are bound and the files open.

use std::fmt;

use nix::unistd::{Gid, Group, Uid, User, getgroups, initgroups, setgid, setgroups, setuid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_keep_capabilities,
    set_no_new_privs,
};
use weir_server::StartError;

/// Takes on the identity that the configuration asks for, for good. Of root's capabilities `keep`
/// is kept, by the calling thread and those that it starts later.
///
/// # Errors
/// If there is no such user or group, or the process may not change its identity.
pub(crate) fn drop_to(
    user: Option<&str>,
    group: Option<&str>,
    keep: CapabilitySet,
) -> Result<(), StartError> {
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
        become_user(user.uid, keep).map_err(|cause| error(name, cause))?;
        // Root that can be taken back was never given up.
        if !user.uid.is_root() && setuid(Uid::from_raw(0)).is_ok() {
            return Err(error(name, "root privileges could be regained".to_owned()));
        }
        let groups = getgroups().map_or(0, |groups| groups.len());
        let kept = Names(keep).to_string();
        let kept = (!keep.is_empty()).then_some(kept);
        tracing::info!(user = name, uid = user.uid.as_raw(), groups, kept, "privileges dropped");
    }
    Ok(())
}

/// What can be kept of some capabilities, having them: those that the process was started with.
/// Says what is missing. To be called before there are other threads: none of them, nor what they
/// execute, gets more than it has from now on.
///
/// # Errors
/// What the system says.
pub(crate) fn prepare_to_keep(wanted: CapabilitySet) -> std::io::Result<CapabilitySet> {
    let permitted = capabilities(None)?.permitted;
    let missing = wanted.difference(permitted);
    if !missing.is_empty() {
        tracing::warn!(
            "keep-bpf: this process has no {}, and cannot keep what it has not; where that is \
             needed for rules that change, they are enforced after accept",
            Names(missing)
        );
    }
    set_no_new_privs(true)?;
    Ok(wanted.intersection(permitted))
}

/// Becomes a user, and has no more capabilities than these: permitted and effective, so that this
/// thread can use them; not inheritable, and so not ambient, so that what it executes has none.
fn become_user(uid: Uid, keep: CapabilitySet) -> Result<(), String> {
    let set_keep = |on| set_keep_capabilities(on).map_err(|e| format!("keeping privileges: {e}"));
    if !keep.is_empty() {
        set_keep(true)?;
    }
    setuid(uid).map_err(|e| format!("{e}; only root can change users"))?;
    if !keep.is_empty() {
        let inheritable = CapabilitySet::empty();
        let sets = CapabilitySets { effective: keep, permitted: keep, inheritable };
        set_capabilities(None, sets).map_err(|e| format!("dropping privileges: {e}"))?;
        set_keep(false)?;
    }
    Ok(())
}

/// Capabilities by the names that people know.
struct Names(CapabilitySet);

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> =
            self.0.iter_names().map(|(name, _)| format!("CAP_{name}")).collect();
        f.write_str(&names.join(" and "))
    }
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
