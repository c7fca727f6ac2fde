//! Executes translated code in this process and compares all state with the interpreter's.

mod control;
mod conversions;
mod faults;
mod generator;
mod host;
mod input;
mod instructions;
mod link;
mod output;
mod sequences;
mod thunks;
