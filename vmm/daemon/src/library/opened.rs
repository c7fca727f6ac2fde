//! Files of programs that are kept open for VMs. The daemon only passes them on, and never reads
//! them.

use super::error::host;
use super::{Library, LibraryError, NOTE, Name, lock, normal};
use crate::jailed::protocol::MAX_AHEAD;
use crate::store::Program;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::Instant;

/// Most programs whose files are kept open: of all tenants, and of one tenant.
const MAX_OPEN: usize = 256;
const MAX_OPEN_OF_TENANT: usize = 32;

/// Open files of a program.
#[derive(Debug)]
pub struct Files {
    /// The program's tenant.
    pub(super) tenant: String,
    /// The program's id.
    pub(super) program: String,
    /// The tree.
    pub tree: File,
    /// Inodes and their translation images.
    pub images: Vec<(u32, File)>,
}

/// Files that are being opened, or are open; several tasks can await them.
type Opening = Shared<BoxFuture<'static, Result<Arc<Files>, Arc<LibraryError>>>>;

/// Files of a program, and the time of their opening, when the program's use is noted.
#[derive(Debug)]
pub(super) struct Opened {
    files: Opening,
    since: Instant,
}

impl Library {
    /// The files of a packed program, with the images that are there. They are opened once, also for
    /// simultaneous requests.
    ///
    /// # Errors
    /// The tree cannot be opened. Images that cannot be opened are left out.
    pub async fn files(
        self: &Arc<Self>,
        program: &Program,
    ) -> Result<Arc<Files>, Arc<LibraryError>> {
        let name = (program.tenant.clone(), program.id.clone());
        let opening = self.opening(&name, program);
        let opened = opening.await;
        if opened.is_err() {
            lock(&self.open).remove(&name);
        }
        opened
    }

    fn opening(self: &Arc<Self>, name: &Name, program: &Program) -> Opening {
        let mut all = lock(&self.open);
        if let Some(opened) = all.get(name)
            && opened.since.elapsed() < NOTE
        {
            return opened.files.clone();
        }
        let of_tenant = all.iter().filter(|((tenant, _), _)| *tenant == name.0);
        let (count, oldest) = of_tenant.fold((0, None), |(count, oldest), entry| {
            let oldest = oldest.unwrap_or(entry);
            let is_older = entry.1.since < oldest.1.since;
            (count + 1, Some(if is_older { entry } else { oldest }))
        });
        if count >= MAX_OPEN_OF_TENANT
            && let Some(oldest) = oldest.map(|(name, _)| name.clone())
        {
            all.remove(&oldest);
        }
        if all.len() >= MAX_OPEN {
            all.clear();
        }
        let (library, program) = (Arc::clone(self), program.clone());
        let work = tokio::task::spawn_blocking(move || library.open_files(&program));
        let files = work.map(|done| match done {
            Ok(opened) => opened.map(Arc::new).map_err(Arc::new),
            Err(error) => Err(Arc::new(host("the tree")(io::Error::other(error)))),
        });
        let files = files.boxed().shared();
        let opened = Opened {
            files: files.clone(),
            since: Instant::now(),
        };
        all.insert(name.clone(), opened);
        files
    }

    fn open_files(&self, program: &Program) -> Result<Files, LibraryError> {
        let (tenant, id) = (&program.tenant, &program.id);
        self.store.use_program(tenant, id)?;
        let tree = self.own_tree(program)?;
        let mut images = Vec::new();
        for &inode in program.files.iter().take(MAX_AHEAD) {
            // Without its contents the image is unknown. The VM requests it later.
            if let Some(Some(digest)) = self.store.contents(tenant, id, inode)? {
                let key = self.key(&digest, normal(inode).variant);
                let image = self.find_or_copy(tenant, &key);
                images.extend(image.map(|image| (inode, image)));
            }
        }
        Ok(Files {
            tenant: tenant.clone(),
            program: id.clone(),
            tree: tree.ok_or_else(|| host("the tree")(io::ErrorKind::NotFound.into()))?,
            images,
        })
    }
}
