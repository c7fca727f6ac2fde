//! File contents against a vector of bytes.

use crate::convert::{low_u8, to_usize};
use crate::fs::budget::Budget;
use crate::fs::data::{FileData, MAX_SIZE, PAGE};
use hartline_linux::errno::Errno;

fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

fn all(data: &FileData) -> Vec<u8> {
    let mut bytes = vec![0xee; to_usize(data.size())];
    assert_eq!(data.read(0, &mut bytes), bytes.len());
    bytes
}

#[test]
fn random_operations_agree_with_a_vector() {
    const SPACE: u64 = 40_000;
    for seed in 1..40_u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let base: Vec<u8> = (0..random(&mut state) % 20_000).map(low_u8).collect();
        let mut model = base.clone();
        let mut data = FileData::from_image(Vec::leak(base));
        let mut budget = Budget::new(1 << 20);
        for _ in 0..120 {
            let at = random(&mut state) % SPACE;
            let length = random(&mut state) % 9000;
            let end = to_usize(at + length);
            match random(&mut state) % 5 {
                0 | 1 => {
                    let bytes = vec![low_u8(random(&mut state)); length as usize];
                    assert_eq!(data.write(&mut budget, at, &bytes), Ok(bytes.len()));
                    if length > 0 {
                        model.resize(model.len().max(end), 0);
                        model[at as usize..end].copy_from_slice(&bytes);
                    }
                }
                2 => {
                    data.truncate(&mut budget, at).unwrap();
                    model.resize(at as usize, 0);
                }
                3 => {
                    let to = end.min(model.len()).max((at as usize).min(model.len()));
                    let from = (at as usize).min(to);
                    data.punch(&mut budget, from as u64, to as u64).unwrap();
                    model[from..to].fill(0);
                }
                _ => data.allocate(&mut budget, at, at + length).unwrap(),
            }
            assert_eq!(data.size(), model.len() as u64);
            let mut part = vec![0xee; 5000];
            let n = data.read(at, &mut part);
            let expected = model.get(at as usize..).unwrap_or(&[]);
            assert_eq!(&part[..n], &expected[..expected.len().min(5000)]);
        }
        assert!(all(&data) == model, "seed {seed}");
        data.clear(&mut budget);
        assert_eq!(budget.used(), 0);
    }
}

#[test]
fn sparse_files_cost_what_they_hold() {
    let mut budget = Budget::new(1 << 20);
    let mut data = FileData::default();
    data.write(&mut budget, 1 << 40, b"end").unwrap();
    assert_eq!(data.size(), (1 << 40) + 3);
    assert_eq!(data.blocks(), 8);
    let mut bytes = [1; 10];
    assert_eq!(data.read((1 << 40) - 7, &mut bytes), 10);
    assert_eq!(&bytes, b"\0\0\0\0\0\0\0end");
    assert_eq!(data.next_data(0), Some(1 << 40));
    assert_eq!(data.next_hole(1 << 40), Some((1 << 40) + 3));
    assert_eq!(data.next_hole(0), Some(0));
    assert_eq!(data.next_data((1 << 40) + 3), None);
    data.truncate(&mut budget, 10).unwrap();
    assert_eq!((data.blocks(), budget.used()), (0, 0));
}

#[test]
fn the_image_is_data_and_then_comes_a_hole() {
    let mut budget = Budget::new(1 << 20);
    let mut data = FileData::from_image(&[1; 5000]);
    data.truncate(&mut budget, 100_000).unwrap();
    assert_eq!(data.next_hole(0), Some(2 * PAGE));
    assert_eq!(data.next_data(4999), Some(4999));
    assert_eq!(data.next_data(3 * PAGE), None);
    assert!(data.as_image().is_none());
}

#[test]
fn space_ends() {
    let mut budget = Budget::new(10 * PAGE);
    let mut data = FileData::default();
    let bytes = vec![1; 20 * to_usize(PAGE)];
    let written = data.write(&mut budget, 0, &bytes).unwrap();
    assert!(written >= 9 * to_usize(PAGE) && written < 11 * to_usize(PAGE));
    assert_eq!(data.size(), written as u64);
    let end = data.size();
    assert_eq!(data.write(&mut budget, end, b"x"), Err(Errno::ENOSPC));
    assert_eq!(data.allocate(&mut budget, 0, MAX_SIZE), Err(Errno::ENOSPC));
    data.truncate(&mut budget, 0).unwrap();
    assert_eq!(budget.used(), 0);
    assert_eq!(data.allocate(&mut budget, 0, 12 * PAGE), Err(Errno::ENOSPC));
    assert_eq!(budget.used(), 0);
}

#[test]
fn offsets_at_the_end_of_the_range() {
    let mut budget = Budget::new(1 << 20);
    let mut data = FileData::default();
    assert_eq!(data.write(&mut budget, MAX_SIZE, b"x"), Err(Errno::EFBIG));
    assert_eq!(data.write(&mut budget, u64::MAX, b"x"), Err(Errno::EFBIG));
    assert_eq!(data.write(&mut budget, MAX_SIZE - 1, b"xy"), Ok(1));
    assert_eq!(data.truncate(&mut budget, MAX_SIZE + 1), Err(Errno::EFBIG));
    assert_eq!(data.read(u64::MAX, &mut [0; 4]), 0);
    assert_eq!(data.read(MAX_SIZE - 1, &mut [0; 4]), 1);
}
