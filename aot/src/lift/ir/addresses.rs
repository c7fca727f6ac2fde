//! Link-time addresses in a module. Code that refers to them by symbols is the same wherever its
//! function is; the linker of images knows the addresses.

use super::Ir;
use inkwell::values::{IntValue, PointerValue};
use std::collections::HashMap;
use std::ops::Range;

/// Addresses outside this range are constants: the code generator may add or subtract some to a symbol,
/// and the sum must be a signed 32-bit number.
const NAMED: Range<u64> = 0x1000..(1 << 31) - (32 << 20);

/// How a module refers to addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Naming {
    /// By symbols, otherwise by constants; functions have symbols in any case.
    pub symbols: bool,
    /// The names of the symbols have the addresses, for people who read the module. Otherwise the names
    /// do not depend on the addresses, and the module has one function.
    pub readable: bool,
}

impl Naming {
    /// The naming for the linker of images. Code of a position-independent file adds the load bias to
    /// each address, which an instruction can do with a symbol as well as with a constant. Other code
    /// would use some symbols relative to its own address.
    #[must_use]
    pub const fn for_linker(position_independent: bool) -> Self {
        Self {
            symbols: position_independent,
            readable: false,
        }
    }

    /// The naming for people who read the module.
    #[must_use]
    pub const fn for_readers(position_independent: bool) -> Self {
        Self {
            symbols: position_independent,
            readable: true,
        }
    }
}

/// The addresses that a module's symbols name.
#[derive(Debug)]
pub(super) struct Addresses {
    naming: Naming,
    /// Entry of the function that is being lifted.
    entry: u64,
    /// From the first to the last address of its code.
    code: Range<u64>,
    list: Vec<u64>,
    numbers: HashMap<u64, u64>,
}

impl Addresses {
    pub(super) fn new(naming: Naming) -> Self {
        Self {
            naming,
            entry: 0,
            code: 0..0,
            list: Vec::new(),
            numbers: HashMap::new(),
        }
    }

    /// Returns the number that stands for an address in the names of symbols.
    fn number(&mut self, address: u64) -> u64 {
        if self.naming.readable {
            return address;
        }
        *self.numbers.entry(address).or_insert_with(|| {
            self.list.push(address);
            self.list.len() as u64 - 1
        })
    }
}

/// The number that a symbol stands for. Distances are from the entry of the module's function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value {
    /// The address with this index in [`Ir::addresses`].
    Address(u64),
    /// The address at this distance.
    Inside(u64),
    /// The offset of the dispatch cache's entry of the jump at this distance.
    Site(u64),
    /// The [`fault_place`](hartline_abi::hart::Hart::fault_place) of the address at this distance.
    Location {
        /// The distance.
        distance: u64,
        /// The bits of the instruction.
        flags: u32,
    },
}

impl Value {
    /// Parses the name of a symbol.
    #[must_use]
    pub fn of_symbol(name: &str) -> Option<Self> {
        let mut parts = name.split('_');
        let (kind, digits) = (parts.next()?, parts.next()?);
        let number = u64::from_str_radix(digits, 16).ok()?;
        let flags = parts.next();
        let value = match (kind, flags) {
            ("a", None) => Self::Address(number),
            ("e", None) => Self::Inside(number),
            ("s", None) => Self::Site(number),
            ("l", Some(flags)) => Self::Location {
                distance: number,
                flags: u32::from_str_radix(flags, 16).ok()?,
            },
            _ => return None,
        };
        parts.next().is_none().then_some(value)
    }

    fn name(self) -> String {
        match self {
            Self::Address(number) => format!("a_{number:x}"),
            Self::Inside(distance) => format!("e_{distance:x}"),
            Self::Site(distance) => format!("s_{distance:x}"),
            Self::Location { distance, flags } => format!("l_{distance:x}_{flags:x}"),
        }
    }

    /// Returns the limit of the numbers that it may stand for.
    const fn limit(self) -> u64 {
        match self {
            Self::Location { .. } => 1 << 32,
            _ => 1 << 31,
        }
    }
}

impl<'ctx> Ir<'ctx> {
    /// Starts a function with this entry, whose code is at these addresses. The entry is the first one
    /// of its [`addresses`](Self::addresses).
    pub fn start_function(&self, entry: u64, code: Range<u64>) {
        let mut addresses = self.addresses.borrow_mut();
        addresses.entry = entry;
        addresses.code = code;
        addresses.number(entry);
    }

    /// The addresses that symbols name by their indexes; the first one is the function's entry.
    #[must_use]
    pub fn addresses(&self) -> Vec<u64> {
        self.addresses.borrow().list.clone()
    }

    /// Whether symbols name addresses.
    pub fn names_addresses(&self) -> bool {
        self.addresses.borrow().naming.symbols
    }

    /// Returns the number that stands for the guest function at `entry` in the names of symbols.
    #[must_use]
    pub fn function_number(&self, entry: u64) -> u64 {
        self.addresses.borrow_mut().number(entry)
    }

    /// The link-time address `link`.
    pub fn link_address(&self, link: u64) -> IntValue<'ctx> {
        let mut addresses = self.addresses.borrow_mut();
        if !addresses.naming.symbols || !NAMED.contains(&link) {
            return self.constant(link);
        }
        // LLVM assumes that different symbols are different addresses, so an address has one only.
        let value = match !addresses.naming.readable && addresses.code.contains(&link) {
            true => Value::Inside(link.wrapping_sub(addresses.entry)),
            false => Value::Address(addresses.number(link)),
        };
        drop(addresses);
        self.absolute(value)
    }

    /// The offset of the dispatch cache's entry of the jump at `pc`, which is `offset`.
    pub fn site(&self, pc: u64, offset: u64) -> IntValue<'ctx> {
        match self.names_addresses() {
            true => self.absolute(Value::Site(self.distance(pc))),
            false => self.constant(offset),
        }
    }

    /// The 32-bit [`fault_place`](hartline_abi::hart::Hart::fault_place) of `link`, which is `number` with
    /// `flags`.
    pub fn fault_place(&self, link: u64, number: u32, flags: u32) -> IntValue<'ctx> {
        let word = self.int_of(32);
        if !self.names_addresses() {
            return word.const_int(u64::from(number | flags), false);
        }
        let distance = self.distance(link);
        self.symbol_of(Value::Location { distance, flags })
            .const_to_int(word)
    }

    /// Returns the distance that stands for an address in the function.
    fn distance(&self, link: u64) -> u64 {
        let addresses = self.addresses.borrow();
        match addresses.naming.readable {
            true => link,
            false => link.wrapping_sub(addresses.entry),
        }
    }

    fn absolute(&self, value: Value) -> IntValue<'ctx> {
        self.symbol_of(value).const_to_int(self.int)
    }

    fn symbol_of(&self, value: Value) -> PointerValue<'ctx> {
        let name = value.name();
        let global = self.module.get_global(&name).unwrap_or_else(|| {
            let global = self.declare_symbol(&name);
            let limits = [0, value.limit()].map(|limit| self.constant(limit).into());
            global.set_metadata(self.context.metadata_node(&limits), self.kinds.absolute);
            global
        });
        global.as_pointer_value()
    }
}
