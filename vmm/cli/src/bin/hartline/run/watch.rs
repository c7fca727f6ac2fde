//! The files that `--profile`, `--perf-map` and `--jitdump` write about a run.

use super::Arguments;
use super::backtrace::read_file;
use super::jitdump::JitDump;
use super::perf_map;
use super::profile::{Recorder, SampledStacks};
use super::ran::{Files, Ran};
use crate::debug_dir::DebugDirectories;
use anyhow::Context;
use hartline_embed::translation::Translation;
use hartline_tree::TreeImage;
use hartline_vmm::machine::Outcome;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The files to write, and their sources.
pub struct Watch {
    /// Records samples.
    pub recorder: Recorder,
    /// File for the profile.
    pub profile: Option<(File, PathBuf)>,
    /// Finds the call stacks of samples.
    pub stacks: Option<Arc<SampledStacks>>,
    perf_map: Option<File>,
    jitdump: Option<JitDump>,
}

impl Watch {
    /// Creates the requested files, so that an error is found before the program runs.
    ///
    /// # Errors
    /// A file cannot be created.
    pub fn new(arguments: &Arguments, tree: &Arc<TreeImage>) -> anyhow::Result<Self> {
        let profile = match &arguments.profile {
            Some(path) => {
                let file = File::create(path).with_context(|| path.display().to_string())?;
                Some((file, path.clone()))
            }
            None => None,
        };
        let perf_map = match &arguments.perf_map {
            Some(path) => Some(perf_map::prepare(path.as_deref())?),
            None => None,
        };
        let jitdump = arguments.jitdump.as_deref().map(JitDump::create);
        let jitdump = jitdump.transpose()?;
        let stacks = SampledStacks::new(tree, &arguments.debug);
        let stacks = arguments.profile_lines.then(|| Arc::new(stacks));
        Ok(Self {
            recorder: Recorder::new(arguments.profile_period, stacks.clone()),
            stacks,
            profile,
            perf_map,
            jitdump,
        })
    }

    /// Writes the files, after the VM has ended. `translation` made the code that ran.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn finish(
        self,
        outcome: &Outcome,
        tree: &Arc<TreeImage>,
        program: &str,
        debug: &DebugDirectories,
        translation: Option<&Translation>,
    ) -> anyhow::Result<()> {
        let has_lines = self.profile.is_some() || self.jitdump.is_some();
        if !has_lines && self.perf_map.is_none() {
            return Ok(());
        }
        let files = Files::of(outcome, tree, self.recorder.inodes());
        let read = |path: &Path| read_file(tree, path);
        let debug = debug.files(Some(&read));
        // The names of a perf map have no lines.
        let debug = has_lines.then_some(&debug);
        let mut ran = Ran::new(&files, debug);
        if let Some((file, path)) = self.profile {
            let written = self.recorder.write((file, &path), program, &mut ran);
            written.context("--profile")?;
        }
        if let Some(file) = self.perf_map {
            perf_map::write(file, &ran)?;
        }
        match self.jitdump {
            Some(file) => file.write(&mut ran, &files, translation),
            None => Ok(()),
        }
    }
}
