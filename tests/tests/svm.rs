fn main() {
    panic!("not written yet");
}
