//! Processing of typed and written bytes.

use super::*;
use hartline_linux::termbits::{ECHO, IUTF8, OPOST, TABDLY, VMIN};

fn typed(line: &mut Line, bytes: &[u8]) -> Vec<u8> {
    let (done, signals) = line.type_bytes(bytes).unwrap();
    assert_eq!(done, bytes.len());
    signals
}

fn read(line: &mut Line, wanted: usize) -> Option<Vec<u8>> {
    let count = line.available(wanted, false)?;
    let mut bytes = std::vec![0; count];
    assert_eq!(line.take_input(&mut bytes), count);
    Some(bytes)
}

fn screen(line: &mut Line) -> Vec<u8> {
    let mut bytes = std::vec![0; line.screen_length()];
    line.take_screen(&mut bytes);
    bytes
}

#[test]
fn lines_are_edited_and_read_one_at_a_time() {
    let mut line = Line::default();
    typed(&mut line, b"one\r");
    assert_eq!(read(&mut line, 100).unwrap(), b"one\n");
    assert_eq!(screen(&mut line), b"one\r\n");
    typed(&mut line, b"ab\x7fc");
    assert_eq!((read(&mut line, 100), line.is_readable()), (None, false));
    assert_eq!(screen(&mut line), b"ab\x08 \x08c");
    typed(&mut line, b"\nsecond\n");
    assert_eq!(read(&mut line, 2).unwrap(), b"ac");
    assert_eq!(read(&mut line, 100).unwrap(), b"\n");
    assert_eq!(read(&mut line, 100).unwrap(), b"second\n");
    // End of file: first after text, then alone.
    typed(&mut line, b"x\x04\x04");
    assert_eq!(read(&mut line, 100).unwrap(), b"x");
    assert_eq!(read(&mut line, 100).unwrap(), b"");
    assert_eq!(read(&mut line, 100), None);
}

#[test]
fn erasing_words_lines_tabs_and_utf8() {
    let mut line = Line::default();
    typed(&mut line, b"ls  foo/bar \x17\n");
    assert_eq!(read(&mut line, 100).unwrap(), b"ls  foo/\n");
    screen(&mut line);
    typed(&mut line, b"a\x03\x16\x03b\x15c\n");
    assert_eq!(read(&mut line, 100).unwrap(), b"c\n");
    screen(&mut line);
    typed(&mut line, b"a\t\x7f");
    assert_eq!(screen(&mut line), b"a\t\x08\x08\x08\x08\x08\x08\x08");
    line.flush_input();
    line.termios.c_iflag |= IUTF8;
    typed(&mut line, b"\r");
    screen(&mut line);
    read(&mut line, 9);
    typed(&mut line, "aä\u{7f}".as_bytes());
    assert_eq!(screen(&mut line), "aä\u{8} \u{8}".as_bytes());
    typed(&mut line, b"\n");
    assert_eq!(read(&mut line, 100).unwrap(), b"a\n");
}

#[test]
fn characters_mean_signals_and_drop_what_was_typed() {
    let mut line = Line::default();
    assert_eq!(typed(&mut line, b"ab\x03"), [SIGINT]);
    assert_eq!(screen(&mut line), b"^C");
    assert_eq!(typed(&mut line, b"\x1a\x1c"), [SIGTSTP, SIGQUIT]);
    typed(&mut line, b"c\n");
    assert_eq!(read(&mut line, 100).unwrap(), b"c\n");
    line.termios.c_lflag &= !ISIG;
    assert!(typed(&mut line, b"\x03\n").is_empty());
    assert_eq!(read(&mut line, 100).unwrap(), b"\x03\n");
}

#[test]
fn raw_reads_wait_for_as_much_as_they_should() {
    let mut line = Line::default();
    let mut settings = line.termios;
    typed(&mut line, b"typed before");
    settings.c_lflag &= !(ICANON | ECHO);
    line.set(settings);
    assert_eq!(read(&mut line, 5).unwrap(), b"typed");
    assert_eq!(read(&mut line, 50).unwrap(), b" before");
    assert_eq!(read(&mut line, 50), None);
    line.termios.c_cc[VMIN] = 3;
    typed(&mut line, b"ab");
    assert_eq!((read(&mut line, 50), line.is_readable()), (None, false));
    assert_eq!(read(&mut line, 1).unwrap(), b"a");
    assert_eq!(line.available(50, true), Some(1));
    line.termios.c_cc[VMIN] = 0;
    assert_eq!(read(&mut line, 50).unwrap(), b"b");
    assert_eq!(read(&mut line, 50).unwrap(), b"");
    // Back to canonical mode: the bytes that are there become a line.
    typed(&mut line, b"xy");
    settings.c_lflag |= ICANON;
    line.set(settings);
    assert_eq!(read(&mut line, 50).unwrap(), b"xy");
    assert_eq!(read(&mut line, 50), None);
}

#[test]
fn output_is_processed_stopped_and_limited() {
    let mut line = Line::default();
    assert_eq!(line.write(b"a\nb\t"), Ok(4));
    assert_eq!(screen(&mut line), b"a\r\nb\t");
    line.termios.c_oflag |= TABDLY;
    line.write(b"\rab\tc").unwrap();
    assert_eq!(screen(&mut line), b"\rab      c");
    line.termios.c_oflag &= !OPOST;
    line.write(b"\n\t").unwrap();
    assert_eq!(screen(&mut line), b"\n\t");
    typed(&mut line, b"\x13");
    assert_eq!(line.write(b"x"), Err(Errno::EAGAIN));
    typed(&mut line, b"\x11");
    let mut written = 0;
    while let Ok(count) = line.write(&[b'y'; 10_000]) {
        written += count;
    }
    assert!(written <= CAPACITY && !line.takes_output());
    assert_eq!(screen(&mut line).len(), written);
    assert!(line.takes_output());
}

#[test]
fn a_line_has_a_greatest_length_and_can_always_be_ended() {
    let mut line = Line::default();
    typed(&mut line, &[b'z'; MAX_LINE + 50]);
    typed(&mut line, b"\n");
    assert_eq!(read(&mut line, 9999).unwrap().len(), MAX_LINE + 1);
    while line.takes_input() {
        typed(&mut line, b"full\n");
    }
    let taken = line.type_bytes(&[b'a'; 1000]).map(|(done, _)| done);
    assert!(taken.is_ok_and(|done| done < 1000));
    assert_eq!(line.type_bytes(b"a").unwrap_err(), Errno::EAGAIN);
}

#[test]
fn a_master_in_packet_mode_is_told_of_flow_and_flushes() {
    let mut line = Line::default();
    line.set(line.termios);
    assert!(!line.has_packet_status());
    typed(&mut line, b"\x13\x13");
    assert_eq!(line.take_news(), TIOCPKT_STOP);
    typed(&mut line, b"\x11");
    assert_eq!((line.take_news(), line.take_news()), (TIOCPKT_START, 0));
    typed(&mut line, b"\x13\x03");
    let flushed = TIOCPKT_FLUSHREAD | TIOCPKT_FLUSHWRITE;
    assert_eq!(line.take_news(), TIOCPKT_START | flushed);
    let mut settings = line.termios;
    settings.c_iflag &= !IXON;
    line.set(settings);
    assert_eq!(line.take_news(), TIOCPKT_NOSTOP);
    settings.c_iflag |= IXON;
    line.set(settings);
    settings.c_cc[VSTOP] = 1;
    line.set(settings);
    assert_eq!(line.take_news(), TIOCPKT_NOSTOP);
}
