package accel

import "fmt"

// exitPort is the port of QEMU's isa-debug-exit device.
const exitPort = 0xf4

// exitStatus is QEMU's exit code when the guest writes 0x2a to the port. No failure of QEMU has it.
const exitStatus = 0x2a<<1 | 1

// amd64 is the guest of nodes with x86-64. SeaBIOS doesn't boot from a disk of less than a cylinder.
func amd64() guest {
	disk := make([]byte, 1<<20)
	copy(disk, bootSector)
	disk[510], disk[511] = 0x55, 0xaa
	return guest{
		image: disk,
		args: []string{
			"-machine", "q35", "-m", "16", "-nodefaults",
			"-drive", "file=" + imageFile + ",format=raw,if=virtio,readonly=on",
			"-device", fmt.Sprintf("isa-debug-exit,iobase=%#x,iosize=4", exitPort),
		},
		status: exitStatus,
	}
}

// bootSector is the first sector of the disk. On some nodes KVM runs a few instructions but no
// operating system. So the probe boots through QEMU's firmware and a virtio disk.
// The guest waits for a timer interrupt, switches to 64-bit mode with paging, and
// then reports.
var bootSector = []byte{
	// 16 bits: set segments and stack up.
	0x31, 0xc0, // xor ax, ax
	0x8e, 0xd8, // mov ds, ax
	0x8e, 0xc0, // mov es, ax
	0x8e, 0xd0, // mov ss, ax
	0xbc, 0x00, 0x7c, // mov sp, 0x7c00
	// Wait for the firmware's timer interrupt.
	0xfb, // sti
	0xf4, // hlt
	0xfa, // cli
	// Page tables at 0x1000, 0x2000 and 0x3000 map the first 2 MiB.
	0xfc,             // cld
	0xbf, 0x00, 0x10, // mov di, 0x1000
	0xb9, 0x00, 0x18, // mov cx, 0x1800
	0xf3, 0xab, // rep stosw
	0xc7, 0x06, 0x00, 0x10, 0x03, 0x20, // mov word [0x1000], 0x2003
	0xc7, 0x06, 0x00, 0x20, 0x03, 0x30, // mov word [0x2000], 0x3003
	0xc7, 0x06, 0x00, 0x30, 0x83, 0x00, // mov word [0x3000], 0x0083
	// Go to long mode: CR4.PAE, CR3, EFER.LME, CR0.PG and PE, far jump.
	0x66, 0x0f, 0x01, 0x16, 0x78, 0x7c, // lgdt [gdtr]
	0x66, 0xb8, 0x20, 0x00, 0x00, 0x00, // mov eax, 0x20
	0x0f, 0x22, 0xe0, // mov cr4, eax
	0x66, 0xb8, 0x00, 0x10, 0x00, 0x00, // mov eax, 0x1000
	0x0f, 0x22, 0xd8, // mov cr3, eax
	0x66, 0xb9, 0x80, 0x00, 0x00, 0xc0, // mov ecx, 0xc0000080
	0x0f, 0x32, // rdmsr
	0x80, 0xcc, 0x01, // or ah, 1
	0x0f, 0x30, // wrmsr
	0x66, 0xb8, 0x01, 0x00, 0x00, 0x80, // mov eax, 0x80000001
	0x0f, 0x22, 0xc0, // mov cr0, eax
	0xea, 0x5c, 0x7c, 0x08, 0x00, // jmp 8:long
	// 64 bits: report.
	0xb0, 0x2a, // long: mov al, 0x2a
	0xe6, exitPort, // out exitPort, al
	0xf4,       // stop: hlt
	0xeb, 0xfd, // jmp stop
	0, 0, 0, 0, 0, // to a multiple of eight
	// The descriptor table: nothing, and a 64-bit code segment.
	0, 0, 0, 0, 0, 0, 0, 0,
	0x00, 0x00, 0x00, 0x00, 0x00, 0x9a, 0x20, 0x00,
	// Its size less one and its address.
	0x0f, 0x00, 0x68, 0x7c, 0x00, 0x00, // gdtr
}
