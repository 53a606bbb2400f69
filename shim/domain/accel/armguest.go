package accel

import (
	"encoding/binary"
	"strings"
)

// armMark is what the guest of arm64 writes to its serial port: QEMU's exit code of a guest that powers off
// is the same as without a guest.
const armMark = "*"

// kernel is the guest of arm64: it writes its mark to the serial port of QEMU's board virt, and asks the
// firmware interface PSCI to power off.
var kernel = []uint32{
	0x52a12001, // movz w1, #0x0900, lsl #16  the serial port, a PL011
	0x52806023, // movz w3, #0x301
	0xb9003023, // str w3, [x1, #0x30]        enable it
	0x52800542, // movz w2, #'*'
	0x39000022, // strb w2, [x1]
	0x52800100, // movz w0, #0x0008
	0x72b08000, // movk w0, #0x8400, lsl #16  SYSTEM_OFF
	0xd4000002, // hvc #0
	0x14000000, // b .
}

// arm64 is the guest of nodes with arm64. An interrupt controller of the node's version is the only one that
// KVM has there.
func arm64(a Accelerator) guest {
	var image []byte
	for _, instruction := range kernel {
		image = binary.LittleEndian.AppendUint32(image, instruction)
	}
	machine := "virt"
	if a == KVM {
		machine += ",gic-version=host"
	}
	return guest{
		image: image,
		args: []string{
			"-machine", machine, "-m", "64", "-nodefaults", "-serial", "stdio",
			"-kernel", imageFile,
		},
		output: func(text string) bool { return strings.Contains(text, armMark) },
	}
}
