//! Translation of a region.

use crate::features::Features;
use crate::machine::Emitter;
use crate::output::{Entry, Translation};
use crate::region::{Error, Region};
use crate::sweep::{Facts, Kind, Sweep};

/// Translates a region for a processor with `features`. The code has at most
/// [`MAX_EXPANSION`](crate::MAX_EXPANSION) bytes per byte of the region, plus
/// [`MAX_FIXED`](crate::MAX_FIXED).
///
/// # Errors
/// The region is empty or too long, or one of its addresses is not valid.
pub fn translate(region: &Region<'_>, features: &Features) -> Result<Translation, Error> {
    region.check()?;
    let sweep = Sweep::of(region);
    let mut emitter = Emitter::new(region, &sweep, *features);
    let mut entries = Vec::new();
    let mut continues = false;
    for (index, found) in sweep.found.iter().enumerate() {
        let slot = found.slot as usize;
        let pc = region.address(slot);
        let is_function = sweep.facts[slot].has(Facts::FUNCTION);
        if is_function && !continues {
            // All code of a function is between its entry and the next one: profiles and perf find
            // its name by that.
            emitter.emit_stubs();
        }
        if let Some(label) = emitter.begin(slot) {
            entries.push((pc, label, is_function));
        }
        continues = match &found.kind {
            Kind::Legal(instruction) => emitter.emit(pc, instruction),
            Kind::Illegal => {
                emitter.emit_illegal(pc);
                false
            }
            Kind::Cut => {
                emitter.emit_cut(pc);
                false
            }
        };
        let next = slot + usize::from(found.length);
        let follows = sweep.found.get(index + 1);
        if continues && follows.is_none_or(|follows| follows.slot as usize != next) {
            emitter.go_to(region.address(next));
        }
    }
    let emission = emitter.finish();
    let entry = |(guest, label, is_function)| Entry {
        guest,
        host: emission.code.offset(label),
        is_function,
    };
    Ok(Translation {
        entries: entries.into_iter().map(entry).collect(),
        code: emission.code.bytes,
        relocations: emission.relocations,
        accesses: emission.accesses,
        instructions: sweep.found.len() as u32,
        interpreted: emission.interpreted,
    })
}
