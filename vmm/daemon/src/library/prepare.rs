//! Preparing an upload: its tree, and translations.

use super::error::host;
use super::queue::Lane;
use super::shelf::allocated;
use super::{Library, LibraryError, Name, PACKING, lock, normal};
use crate::jailed::protocol::{ElfFile, FromWorker, MAX_AHEAD, WorkerJob};
use crate::problem::{STORAGE_FULL, STORAGE_QUOTA, TRANSLATION_BUDGET, WORKER_KILLED};
use crate::store::{Program, ProgramState, Storage, StoreError};
use hartline_jail::MAX_WORKER_FILE;
use std::collections::BTreeMap;
use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

/// The operation in messages about trees.
const WHAT: &str = "keeping the tree";
/// The pause before a failed database update is retried.
const NOTE_AGAIN: Duration = Duration::from_secs(2);
/// Problems that can pass by themselves, the most important one first.
const PASSING: [&str; 4] = [
    STORAGE_FULL,
    STORAGE_QUOTA,
    TRANSLATION_BUDGET,
    WORKER_KILLED,
];

impl Library {
    /// Resumes the programs that were not ready when the daemon ended, and those that an earlier
    /// version prepared.
    ///
    /// # Errors
    /// The database failed.
    pub fn resume(self: &Arc<Self>) -> Result<(), StoreError> {
        for program in self.store.unfinished_programs()? {
            self.prepare(program);
        }
        Ok(())
    }

    /// Packs and translates a program in the background.
    pub(super) fn prepare(self: &Arc<Self>, program: Program) {
        let library = Arc::clone(self);
        tokio::spawn(async move { library.finish(program).await });
    }

    /// Prepares in the background the programs that lacked room or budget, if there is some now.
    /// Programs of a tenant are prepared one after another. Ready programs stay ready meanwhile.
    ///
    /// # Errors
    /// The database failed.
    pub fn retry(self: &Arc<Self>) -> Result<(), StoreError> {
        let mut programs = Vec::new();
        for problem in PASSING {
            programs.extend(self.store.programs_with(problem)?);
        }
        programs.retain(|program| {
            let is_spent = || self.translations.is_spent(&program.tenant);
            program.problem != TRANSLATION_BUDGET || !is_spent()
        });
        for (tenant, programs) in by_tenant(programs) {
            // If the tenant is in the set already, its last programs are still being tried.
            if !lock(&self.retries).insert(tenant.clone()) {
                continue;
            }
            let library = Arc::clone(self);
            tokio::spawn(async move {
                for program in programs {
                    library.finish(program).await;
                }
                lock(&library.retries).remove(&tenant);
            });
        }
        Ok(())
    }

    /// Waits until a program is deleted.
    async fn deletion(&self, (tenant, id): &Name) {
        loop {
            // Made before the check, so that no deletion is missed.
            let next = self.deletions.notified();
            let found = tokio::task::block_in_place(|| self.store.program(tenant, id));
            if matches!(found, Ok(None)) {
                return;
            }
            next.await;
        }
    }

    /// Packs and translates a program, and notes the result.
    async fn finish(&self, mut program: Program) {
        let name = (program.tenant.clone(), program.id.clone());
        let before = program.clone();
        self.forget_opened(&program);
        // Dropping the work ends its worker.
        let result = tokio::select! {
            result = self.make_ready(&mut program) => result,
            () = self.deletion(&name) => Err(LibraryError::Gone),
        };
        if let Err(error) = result {
            program.state = ProgramState::Failed;
            program.problem = error.code().to_owned();
            program.message = error.to_string();
        }
        lock(&self.progress).remove(&name);
        if let Err(error) = self.forget_if_gone(&program) {
            tracing::error!(program = %program.id, "{error}");
        }
        if program == before {
            return;
        }
        if !program.message.is_empty() {
            tracing::warn!(program = %program.id, "not prepared: {}", program.message);
        }
        // The program has new images.
        self.forget_opened(&program);
        while let Err(error) = tokio::task::block_in_place(|| self.store.update_program(&program)) {
            // Nothing else would note it: until then the program is shown in its old state.
            tracing::error!(program = %program.id, "{error}");
            tokio::time::sleep(NOTE_AGAIN).await;
        }
    }

    /// Closes the files of a program, which the next VM opens again.
    fn forget_opened(&self, program: &Program) {
        let name = (program.tenant.clone(), program.id.clone());
        lock(&self.open).remove(&name);
    }

    /// Deletes the files of a program that was deleted during the work.
    fn forget_if_gone(&self, program: &Program) -> Result<(), StoreError> {
        let _deleting = lock(&self.uploads);
        match self.store.program(&program.tenant, &program.id)? {
            Some(_) => Ok(()),
            None => self.forget_upload(&program.tenant, &program.id),
        }
    }

    async fn make_ready(&self, program: &mut Program) -> Result<(), LibraryError> {
        let tree = self.pack(program).await?;
        let files = self.find_files(program, &tree).await?;
        if program.state != ProgramState::Ready {
            program.state = ProgramState::Translating;
        }
        tokio::task::block_in_place(|| self.store.update_program(program))?;
        let mut failures = Vec::new();
        for ElfFile { inode, digest } in files {
            if self.store.program(&program.tenant, &program.id)?.is_none() {
                return Err(LibraryError::Gone);
            }
            let progress = |so_far| {
                let name = (program.tenant.clone(), program.id.clone());
                lock(&self.progress).insert(name, so_far);
            };
            let (lane, image) = ((program.tenant.as_str(), Lane::Upload), normal(inode));
            let done = self.translate(lane, &tree, (image, &digest), progress);
            match done.await {
                // VMs that start now get this image.
                Ok(()) => self.forget_opened(program),
                Err(error) => failures.push(error),
            }
        }
        program.state = ProgramState::Ready;
        // Problems that will be tried again take precedence.
        let passing = PASSING
            .iter()
            .find_map(|code| failures.iter().find(|error| error.code() == *code));
        let worst = passing.or(failures.first());
        program.problem = worst.map_or("", LibraryError::code).to_owned();
        program.message = worst.map_or_else(String::new, |worst| {
            format!("{} files are interpreted: {worst}", failures.len())
        });
        Ok(())
    }

    /// The maximum number of bytes of a new file of a tenant.
    ///
    /// # Errors
    /// [`StoreError::Quota`] if the tenant may have no further file.
    pub(super) fn room(&self, tenant: &str) -> Result<u64, StoreError> {
        match self.store.storage_left(tenant)? {
            Storage { inodes: 0, .. } => Err(StoreError::Quota {
                what: "inodes",
                left: 0,
            }),
            Storage { bytes, .. } => Ok(bytes),
        }
    }

    /// Makes the tree.
    async fn pack(&self, program: &mut Program) -> Result<File, LibraryError> {
        let own = |program: &Program| tokio::task::block_in_place(|| self.own_tree(program));
        if let Some(tree) = own(program)? {
            return Ok(tree);
        }
        let left = self.room(&program.tenant)?;
        let path = self.trees.path(&program.tenant, &program.id);
        self.missing.check(&path, WHAT, left)?;
        let upload = File::open(self.upload(&program.id)).map_err(host("the upload"))?;
        let turn = self.turn(&self.packing, &program.tenant, Lane::Upload);
        let mut turn = turn.await?;
        // Another tenant may have had it packed while this task waited.
        if let Some(tree) = own(program)? {
            return Ok(tree);
        }
        let job = WorkerJob::Pack {
            kind: program.kind,
            limit: left.min(MAX_WORKER_FILE),
        };
        let limit = ("packing", PACKING);
        let answer = self.work(&mut turn, (&job, &upload), limit, |_| ()).await?;
        let kept = match answer {
            (FromWorker::Packed, Some(tree)) => {
                tokio::task::block_in_place(|| self.keep_tree(program, &tree, false))
            }
            (FromWorker::TooMuch, _) => Err(LibraryError::Quota {
                what: WHAT,
                bytes: left.saturating_add(1),
                left,
            }),
            _ => Err(LibraryError::Upload("the worker gave no tree".to_owned())),
        };
        self.missing.note(&path, &kept);
        kept
    }

    /// The tree of a program: the tenant's own, or a new copy of another tenant's; `None`: no
    /// tenant has one.
    pub(super) fn own_tree(&self, program: &Program) -> Result<Option<File>, LibraryError> {
        let (tenant, id) = (program.tenant.as_str(), program.id.as_str());
        if let Ok(tree) = File::open(self.trees.path(tenant, id)) {
            if program.tree_size == 0 {
                self.count_tree(program, &tree, true)?;
            }
            return Ok(Some(tree));
        }
        let failed = host("the tree");
        let Some(other) = self.trees.other(tenant, id).map_err(&failed)? else {
            return Ok(None);
        };
        let tree = File::open(&other).map_err(&failed)?;
        let is_there = program.state == ProgramState::Ready;
        if self.store.upload_tenants(id)? != [tenant] {
            return self.keep_tree(program, &tree, is_there).map(Some);
        }
        self.count_tree(program, &tree, is_there)?;
        self.trees.take((tenant, id), &other).map_err(&failed)?;
        Ok(Some(tree))
    }

    /// Counts a tree in its tenant's storage. Result: bytes.
    fn count_tree(
        &self,
        program: &Program,
        tree: &File,
        is_there: bool,
    ) -> Result<u64, LibraryError> {
        let size = allocated(&tree.metadata().map_err(host(WHAT))?);
        let name = (program.tenant.as_str(), program.id.as_str());
        let counted = self.store.set_tree_size(name, size, is_there);
        match counted.map_err(|error| LibraryError::counting(WHAT, size, error))? {
            true => Ok(size),
            false => Err(LibraryError::Gone),
        }
    }

    /// Gives a tenant a copy of a tree. If it `is_there` already, as a tree that all tenants
    /// shared, it counts in the tenant's storage even without room.
    fn keep_tree(
        &self,
        program: &Program,
        tree: &File,
        is_there: bool,
    ) -> Result<File, LibraryError> {
        let size = self.count_tree(program, tree, is_there)?;
        let name = (program.tenant.as_str(), program.id.as_str());
        let kept = self.trees.keep(name, tree, size, |_| Ok(()));
        kept.map_err(|error| {
            // The first error is reported.
            let _ = self.store.set_tree_size(name, 0, true);
            LibraryError::keeping(WHAT, size, error)
        })
    }

    /// Finds the files to translate ahead, unless they are known.
    async fn find_files(
        &self,
        program: &mut Program,
        tree: &File,
    ) -> Result<Vec<ElfFile>, LibraryError> {
        if let Some(files) = self.known_files(program)? {
            return Ok(files);
        }
        let turn = self.turn(&self.packing, &program.tenant, Lane::Upload);
        let mut turn = turn.await?;
        let job = WorkerJob::Find {
            kind: program.kind,
            programs: program.programs.clone(),
        };
        let limit = ("packing", PACKING);
        let answer = self.work(&mut turn, (&job, tree), limit, |_| ()).await?;
        let FromWorker::Found { mut files } = answer.0 else {
            return Err(LibraryError::Upload("the worker gave no files".to_owned()));
        };
        files.truncate(MAX_AHEAD);
        let (tenant, id) = (&program.tenant, &program.id);
        let note = |file: &ElfFile| {
            let contents = (file.inode, Some(file.digest));
            self.store.note_contents(tenant, id, contents)
        };
        // Files that are not noted are translated when a VM requests them.
        let noted: Result<Vec<bool>, _> = files.iter().map(note).collect();
        noted?;
        program.files = files.iter().map(|file| file.inode).collect();
        Ok(files)
    }

    /// The files to translate ahead, if they were found before.
    fn known_files(&self, program: &Program) -> Result<Option<Vec<ElfFile>>, LibraryError> {
        let mut files = Vec::new();
        for &inode in program.files.iter().take(MAX_AHEAD) {
            let known = self.store.contents(&program.tenant, &program.id, inode)?;
            let Some(Some(digest)) = known else {
                return Ok(None);
            };
            files.push(ElfFile { inode, digest });
        }
        Ok((!files.is_empty()).then_some(files))
    }
}

/// The programs of each tenant.
fn by_tenant(programs: Vec<Program>) -> BTreeMap<String, Vec<Program>> {
    let mut tenants = BTreeMap::<String, Vec<Program>>::new();
    for program in programs {
        let tenant = tenants.entry(program.tenant.clone()).or_default();
        tenant.push(program);
    }
    tenants
}
