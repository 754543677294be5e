//! Functions for what plugins do not have: files, directories and sockets. Every descriptor beside
//! the standard streams is unknown, since none can be opened.

use wasmtime::Linker;

use super::Errno;
use crate::host::Host;

const BAD_FD: u32 = Errno::BadFd as u32;

/// Adds functions that return an error whatever their parameters are.
macro_rules! refused {
    ($linker:ident $module:ident: $($name:literal = $errno:expr, $($ty:ty)*;)*) => {
        $($linker.func_wrap($module, $name, refused!(@closure $errno; $($ty)*))?;)*
    };
    (@closure $errno:expr; $($ty:ty)*) => { |$(_: $ty),*| $errno };
}

pub(super) fn link(linker: &mut Linker<Host>, module: &str) -> wasmtime::Result<()> {
    refused! { linker module:
        "fd_advise" = BAD_FD, u32 u64 u64 u32;
        "fd_allocate" = BAD_FD, u32 u64 u64;
        "fd_datasync" = BAD_FD, u32;
        "fd_fdstat_set_rights" = BAD_FD, u32 u64 u64;
        "fd_filestat_set_size" = BAD_FD, u32 u64;
        "fd_filestat_set_times" = BAD_FD, u32 u64 u64 u32;
        "fd_pread" = BAD_FD, u32 u32 u32 u64 u32;
        // Runtimes ask for directories from 3 on until this says that there are no more.
        "fd_prestat_get" = BAD_FD, u32 u32;
        "fd_prestat_dir_name" = BAD_FD, u32 u32 u32;
        "fd_pwrite" = BAD_FD, u32 u32 u32 u64 u32;
        "fd_readdir" = BAD_FD, u32 u32 u32 u64 u32;
        "fd_renumber" = BAD_FD, u32 u32;
        "fd_sync" = BAD_FD, u32;
        "path_create_directory" = BAD_FD, u32 u32 u32;
        "path_filestat_get" = BAD_FD, u32 u32 u32 u32 u32;
        "path_filestat_set_times" = BAD_FD, u32 u32 u32 u32 u64 u64 u32;
        "path_link" = BAD_FD, u32 u32 u32 u32 u32 u32 u32;
        "path_open" = BAD_FD, u32 u32 u32 u32 u32 u64 u64 u32 u32;
        "path_readlink" = BAD_FD, u32 u32 u32 u32 u32 u32;
        "path_remove_directory" = BAD_FD, u32 u32 u32;
        "path_rename" = BAD_FD, u32 u32 u32 u32 u32 u32;
        "path_symlink" = BAD_FD, u32 u32 u32 u32 u32;
        "path_unlink_file" = BAD_FD, u32 u32 u32;
        "sock_accept" = BAD_FD, u32 u32 u32;
        "sock_recv" = BAD_FD, u32 u32 u32 u32 u32 u32;
        "sock_send" = BAD_FD, u32 u32 u32 u32 u32;
        "sock_shutdown" = BAD_FD, u32 u32;
    }
    Ok(())
}
