//! `linux/tcp.h`: `struct tcp_info`. The options are in [`in_`](crate::in_).
#![allow(missing_docs, reason = "the names are Linux's")]

use core::mem::offset_of;
use zerocopy::{Immutable, IntoBytes};

// States of a connection (`net/tcp_states.h`).
pub const TCP_ESTABLISHED: u8 = 1;
pub const TCP_SYN_SENT: u8 = 2;
pub const TCP_FIN_WAIT2: u8 = 5;
pub const TCP_CLOSE: u8 = 7;
pub const TCP_CLOSE_WAIT: u8 = 8;
pub const TCP_LISTEN: u8 = 10;

/// `struct tcp_info`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, IntoBytes, Immutable)]
pub struct TcpInfo {
    pub tcpi_state: u8,
    /// From `tcpi_ca_state` to the flags behind `tcpi_rcv_wscale`.
    pub small: [u8; 7],
    pub tcpi_rto: u32,
    pub tcpi_ato: u32,
    pub tcpi_snd_mss: u32,
    pub tcpi_rcv_mss: u32,
    /// Of a listening socket, the number of connections that are not accepted yet.
    pub tcpi_unacked: u32,
    /// Of a listening socket, the most such connections.
    pub tcpi_sacked: u32,
    /// From `tcpi_lost` to `tcpi_last_ack_recv`.
    pub counts: [u32; 7],
    pub tcpi_pmtu: u32,
    /// From `tcpi_rcv_ssthresh` to `tcpi_snd_cwnd`.
    pub control: [u32; 5],
    pub tcpi_advmss: u32,
    /// From `tcpi_reordering` to `tcpi_total_rto_time`.
    pub rest: [[u32; 20]; 2],
}

const _: () = assert!(size_of::<TcpInfo>() == 248);
const _: () = assert!(offset_of!(TcpInfo, tcpi_pmtu) == 60);
const _: () = assert!(offset_of!(TcpInfo, tcpi_advmss) == 84);
