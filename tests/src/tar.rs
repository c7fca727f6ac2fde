//! Tar files that tests make, also ones that no tool makes.

/// Returns a tar file with these members.
pub fn tar(members: &[(&str, u8, &str, &[u8])]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, kind, target, contents) in members {
        let mut header = [0u8; 512];
        let mut put = |at: usize, text: &[u8]| header[at..at + text.len()].copy_from_slice(text);
        put(0, name.as_bytes());
        put(100, b"0000755\x000000000\x000000000\0");
        put(124, format!("{:011o}\0", contents.len()).as_bytes());
        put(136, b"00000000000\0");
        put(148, b"        ");
        put(156, &[*kind]);
        put(157, target.as_bytes());
        put(257, b"ustar\x0000");
        let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        bytes.extend_from_slice(&header);
        bytes.extend_from_slice(contents);
        bytes.resize(bytes.len().next_multiple_of(512), 0);
    }
    bytes.resize(bytes.len() + 1024, 0);
    bytes
}
