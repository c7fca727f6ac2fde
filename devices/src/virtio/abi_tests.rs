//! The guest's constants in `hartline-abi` are those of `virtio-bindings`.

use super::feature_bit;
use hartline_abi::virtio::{
    BlockHeader, NetHeader, block_feature, block_request, block_status, device, feature,
    net_command, net_feature, register, status,
};
use virtio_bindings::virtio_blk::*;
use virtio_bindings::virtio_config::*;
use virtio_bindings::virtio_ids::*;
use virtio_bindings::virtio_mmio::*;
use virtio_bindings::virtio_net::*;
use virtio_bindings::virtio_ring::VIRTIO_RING_F_EVENT_IDX;

#[test]
fn registers_and_status_bits_are_equal() {
    for (own, specified) in [
        (register::MAGIC, VIRTIO_MMIO_MAGIC_VALUE),
        (register::VERSION, VIRTIO_MMIO_VERSION),
        (register::DEVICE_ID, VIRTIO_MMIO_DEVICE_ID),
        (register::VENDOR_ID, VIRTIO_MMIO_VENDOR_ID),
        (register::DEVICE_FEATURES, VIRTIO_MMIO_DEVICE_FEATURES),
        (
            register::DEVICE_FEATURES_SELECT,
            VIRTIO_MMIO_DEVICE_FEATURES_SEL,
        ),
        (register::DRIVER_FEATURES, VIRTIO_MMIO_DRIVER_FEATURES),
        (
            register::DRIVER_FEATURES_SELECT,
            VIRTIO_MMIO_DRIVER_FEATURES_SEL,
        ),
        (register::QUEUE_SELECT, VIRTIO_MMIO_QUEUE_SEL),
        (register::QUEUE_SIZE_MAX, VIRTIO_MMIO_QUEUE_NUM_MAX),
        (register::QUEUE_SIZE, VIRTIO_MMIO_QUEUE_NUM),
        (register::QUEUE_READY, VIRTIO_MMIO_QUEUE_READY),
        (register::QUEUE_NOTIFY, VIRTIO_MMIO_QUEUE_NOTIFY),
        (register::INTERRUPT_STATUS, VIRTIO_MMIO_INTERRUPT_STATUS),
        (register::INTERRUPT_ACKNOWLEDGE, VIRTIO_MMIO_INTERRUPT_ACK),
        (register::STATUS, VIRTIO_MMIO_STATUS),
        (register::QUEUE_DESCRIPTORS, VIRTIO_MMIO_QUEUE_DESC_LOW),
        (register::QUEUE_DESCRIPTORS + 4, VIRTIO_MMIO_QUEUE_DESC_HIGH),
        (register::QUEUE_AVAILABLE, VIRTIO_MMIO_QUEUE_AVAIL_LOW),
        (register::QUEUE_AVAILABLE + 4, VIRTIO_MMIO_QUEUE_AVAIL_HIGH),
        (register::QUEUE_USED, VIRTIO_MMIO_QUEUE_USED_LOW),
        (register::QUEUE_USED + 4, VIRTIO_MMIO_QUEUE_USED_HIGH),
        (register::CONFIG_GENERATION, VIRTIO_MMIO_CONFIG_GENERATION),
        (register::CONFIG, VIRTIO_MMIO_CONFIG),
    ] {
        assert_eq!(own, u64::from(specified));
    }
    for (own, specified) in [
        (status::ACKNOWLEDGE, VIRTIO_CONFIG_S_ACKNOWLEDGE),
        (status::DRIVER, VIRTIO_CONFIG_S_DRIVER),
        (status::DRIVER_OK, VIRTIO_CONFIG_S_DRIVER_OK),
        (status::FEATURES_OK, VIRTIO_CONFIG_S_FEATURES_OK),
        (status::NEEDS_RESET, VIRTIO_CONFIG_S_NEEDS_RESET),
        (status::FAILED, VIRTIO_CONFIG_S_FAILED),
        (device::NET, VIRTIO_ID_NET),
        (device::BLOCK, VIRTIO_ID_BLOCK),
        (device::CONSOLE, VIRTIO_ID_CONSOLE),
        (device::RNG, VIRTIO_ID_RNG),
        (device::VSOCK, VIRTIO_ID_VSOCK),
    ] {
        assert_eq!(own, specified);
    }
}

#[test]
fn features_are_equal() {
    for (own, specified) in [
        (feature::EVENT_INDEX, VIRTIO_RING_F_EVENT_IDX),
        (feature::VERSION_1, VIRTIO_F_VERSION_1),
        (feature::IN_ORDER, VIRTIO_F_IN_ORDER),
        (net_feature::CHECKSUM, VIRTIO_NET_F_CSUM),
        (net_feature::GUEST_CHECKSUM, VIRTIO_NET_F_GUEST_CSUM),
        (net_feature::MTU, VIRTIO_NET_F_MTU),
        (net_feature::MAC, VIRTIO_NET_F_MAC),
        (net_feature::GUEST_TSO4, VIRTIO_NET_F_GUEST_TSO4),
        (net_feature::GUEST_TSO6, VIRTIO_NET_F_GUEST_TSO6),
        (net_feature::HOST_TSO4, VIRTIO_NET_F_HOST_TSO4),
        (net_feature::HOST_TSO6, VIRTIO_NET_F_HOST_TSO6),
        (net_feature::MERGEABLE, VIRTIO_NET_F_MRG_RXBUF),
        (net_feature::CONTROL_QUEUE, VIRTIO_NET_F_CTRL_VQ),
        (net_feature::MULTIQUEUE, VIRTIO_NET_F_MQ),
        (net_feature::GUEST_USO4, VIRTIO_NET_F_GUEST_USO4),
        (net_feature::GUEST_USO6, VIRTIO_NET_F_GUEST_USO6),
        (net_feature::HOST_USO, VIRTIO_NET_F_HOST_USO),
        (block_feature::SEGMENTS, VIRTIO_BLK_F_SEG_MAX),
        (block_feature::READ_ONLY, VIRTIO_BLK_F_RO),
        (block_feature::BLOCK_SIZE, VIRTIO_BLK_F_BLK_SIZE),
        (block_feature::FLUSH, VIRTIO_BLK_F_FLUSH),
        (block_feature::DISCARD, VIRTIO_BLK_F_DISCARD),
        (block_feature::WRITE_ZEROES, VIRTIO_BLK_F_WRITE_ZEROES),
    ] {
        assert_eq!(own, feature_bit(specified));
    }
}

#[test]
fn requests_and_headers_are_equal() {
    for (own, specified) in [
        (block_request::IN, VIRTIO_BLK_T_IN),
        (block_request::OUT, VIRTIO_BLK_T_OUT),
        (block_request::FLUSH, VIRTIO_BLK_T_FLUSH),
        (block_request::GET_ID, VIRTIO_BLK_T_GET_ID),
        (block_request::DISCARD, VIRTIO_BLK_T_DISCARD),
        (block_request::WRITE_ZEROES, VIRTIO_BLK_T_WRITE_ZEROES),
    ] {
        assert_eq!(own, specified);
    }
    for (own, specified) in [
        (block_status::OK, VIRTIO_BLK_S_OK),
        (block_status::IO_ERROR, VIRTIO_BLK_S_IOERR),
        (block_status::UNSUPPORTED, VIRTIO_BLK_S_UNSUPP),
        (net_command::MULTIQUEUE, VIRTIO_NET_CTRL_MQ),
        (net_command::SET_PAIRS, VIRTIO_NET_CTRL_MQ_VQ_PAIRS_SET),
        (net_command::OK, VIRTIO_NET_OK),
        (net_command::ERROR, VIRTIO_NET_ERR),
        (NetHeader::NEEDS_CHECKSUM, VIRTIO_NET_HDR_F_NEEDS_CSUM),
        (NetHeader::DATA_VALID, VIRTIO_NET_HDR_F_DATA_VALID),
        (NetHeader::GSO_NONE, VIRTIO_NET_HDR_GSO_NONE),
        (NetHeader::GSO_TCP4, VIRTIO_NET_HDR_GSO_TCPV4),
        (NetHeader::GSO_TCP6, VIRTIO_NET_HDR_GSO_TCPV6),
        (NetHeader::GSO_UDP, VIRTIO_NET_HDR_GSO_UDP_L4),
    ] {
        assert_eq!(u32::from(own), specified);
    }
    assert_eq!(BlockHeader::LENGTH, size_of::<virtio_blk_outhdr>());
    assert_eq!(NetHeader::LENGTH, size_of::<virtio_net_hdr_v1>());
}
