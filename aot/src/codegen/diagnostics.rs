//! Errors that LLVM reports while it generates code. Without a handler, LLVM prints them and ends the process.

use std::ffi::{CStr, c_void};
use std::ptr;

use inkwell::llvm_sys::LLVMDiagnosticSeverity;
use inkwell::llvm_sys::core::{
    LLVMContextSetDiagnosticHandler, LLVMDisposeMessage, LLVMGetDiagInfoDescription,
    LLVMGetDiagInfoSeverity,
};
use inkwell::llvm_sys::prelude::LLVMDiagnosticInfoRef;
use inkwell::module::Module;

/// Calls `work`, which uses LLVM with the module's context. Result: also the first error that LLVM has reported meanwhile.
pub(super) fn watch<T>(module: &Module<'_>, work: impl FnOnce() -> T) -> (T, Option<String>) {
    let context = module.get_context().raw();
    let mut found: Option<String> = None;
    let data = (&raw mut found).cast::<c_void>();
    // SAFETY: the context lives as long as the module. LLVM calls the handler on this thread, and only while `work` runs:
    // `found` lives until the handler is removed below, and nothing else uses it meanwhile.
    unsafe { LLVMContextSetDiagnosticHandler(context, Some(note), data) };
    let result = work();
    // SAFETY: as above. Without a handler, LLVM has its own one again.
    unsafe { LLVMContextSetDiagnosticHandler(context, None, ptr::null_mut()) };
    (result, found)
}

/// Keeps the first error. Warnings and remarks are dropped.
extern "C" fn note(diagnostic: LLVMDiagnosticInfoRef, found: *mut c_void) {
    // SAFETY: LLVM passes a diagnostic that is valid during this call.
    let severity = unsafe { LLVMGetDiagInfoSeverity(diagnostic) };
    if severity != LLVMDiagnosticSeverity::LLVMDSError {
        return;
    }
    // SAFETY: as above. The result is a new NUL-terminated string.
    let text = unsafe { LLVMGetDiagInfoDescription(diagnostic) };
    // SAFETY: the string is valid until it is disposed of.
    let message = unsafe { CStr::from_ptr(text) }
        .to_string_lossy()
        .into_owned();
    // SAFETY: the string came from LLVM, and nothing uses it any more.
    unsafe { LLVMDisposeMessage(text) };
    // SAFETY: `watch` has passed a pointer to its variable, which it does not use while LLVM works.
    let found = unsafe { &mut *found.cast::<Option<String>>() };
    found.get_or_insert(message);
}
