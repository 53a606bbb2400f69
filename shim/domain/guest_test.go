package domain

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// greeting is what the guest prints when it starts.
const greeting = "guest is up\r\n"

// What the guest does for a byte on its console; others come back as an echo.
const (
	keyPanic  = "p" // reports a panic to the pvpanic device
	keyOff    = "o" // powers off by ACPI
	keyReboot = "r"
)

// bootSector is a guest of 94 bytes, in 8086 machine code. It also powers off
// when the ACPI power button is pressed. The ports are those of q35 with
// SeaBIOS.
var bootSector = []byte{
	// Set segments and stack up.
	0x31, 0xc0, // xor ax, ax
	0x8e, 0xd8, // mov ds, ax
	0x8e, 0xd0, // mov ss, ax
	0xbc, 0x00, 0x7c, // mov sp, 0x7c00
	0xfc, // cld
	// Ask for the power button: PM1_EN.PWRBTN_EN.
	0xba, 0x02, 0x06, // mov dx, 0x602
	0xb8, 0x00, 0x01, // mov ax, 0x100
	0xef, // out dx, ax
	// Print the greeting.
	0xbe, 0x00, 0x7d, // mov si, 0x7d00
	0xac,       // print: lodsb
	0x84, 0xc0, // test al, al
	0x74, 0x06, // jz ready
	0xba, 0xf8, 0x03, // mov dx, 0x3f8
	0xee,       // out dx, al
	0xeb, 0xf5, // jmp print
	0xfb, // ready: sti
	// Wait for the next tick, then look at PM1_STS.PWRBTN_STS.
	0xf4,             // loop: hlt
	0xba, 0x00, 0x06, // mov dx, 0x600
	0xed,             // in ax, dx
	0xf6, 0xc4, 0x01, // test ah, 1
	0x75, 0x23, // jnz off
	// Look for a byte on the console.
	0xba, 0xfd, 0x03, // mov dx, 0x3fd
	0xec,       // in al, dx
	0xa8, 0x01, // test al, 1
	0x74, 0xee, // jz loop
	0xba, 0xf8, 0x03, // mov dx, 0x3f8
	0xec,       // in al, dx
	0x3c, 0x70, // cmp al, 'p'
	0x74, 0x0b, // je panic
	0x3c, 0x6f, // cmp al, 'o'
	0x74, 0x0f, // je off
	0x3c, 0x72, // cmp al, 'r'
	0x74, 0x14, // je reboot
	0xee,       // out dx, al
	0xeb, 0xdb, // jmp loop
	0xba, 0x05, 0x05, // panic: mov dx, 0x505
	0xb0, 0x01, // mov al, 1
	0xee,       // out dx, al
	0xeb, 0xd3, // jmp loop
	0xba, 0x04, 0x06, // off: mov dx, 0x604
	0xb8, 0x00, 0x20, // mov ax, 0x2000
	0xef,       // out dx, ax
	0xeb, 0xca, // jmp loop
	0xba, 0xf9, 0x0c, // reboot: mov dx, 0xcf9
	0xb0, 0x06, // mov al, 6
	0xee,       // out dx, al
	0xeb, 0xc2, // jmp loop
}

// bootDisk is the guest as a raw disk. SeaBIOS does not boot from one of less
// than a cylinder.
func bootDisk() []byte {
	disk := make([]byte, 1<<20)
	copy(disk, bootSector)
	copy(disk[0x100:], greeting)
	disk[510], disk[511] = 0x55, 0xaa
	return disk
}

// guest is a machine with the files that it is started with.
type guest struct {
	Description
	files map[string][]*os.File
}

// newGuest makes a machine that boots from an overlay on a raw disk. QEMU's
// user can open neither by itself.
func newGuest(t *testing.T) guest {
	t.Helper()
	dir, err := os.MkdirTemp("/run", "vm") // private here, and short enough for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	base, overlay := filepath.Join(dir, "base.raw"), filepath.Join(dir, "overlay.qcow2")
	if err := os.WriteFile(base, bootDisk(), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "qemu-img", "create", "-q",
		"-f", "qcow2", "-F", "raw", "-b", base, overlay).CombinedOutput()
	if err != nil {
		t.Fatalf("qemu-img: %v: %s", err, out)
	}
	if err := os.Chmod(overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	id := uuid.NewString()
	return guest{
		Description: Description{
			Name: "test-" + id[:8], UUID: id,
			ContainerID: "c-" + id, PodNamespace: "default", PodName: "pod", ContainerName: "vm",
			Spec: vmspec.Spec{
				CPU:     vmspec.CPU{Sockets: 1, Cores: 1, Threads: 1},
				Memory:  32 << 20,
				Machine: "q35",
				Disks:   []vmspec.Disk{{Name: "boot", Bus: vmspec.BusVirtio, Target: "vda", BootOrder: 1}},
				RNG:     true,
				Balloon: true,
			},
			Accelerator: TCG,
			Emulator:    "/usr/bin/qemu-system-x86_64",
			UID:         64001, GID: 64002,
			Disks: []Disk{{Layers: []Layer{
				{Format: "qcow2", Path: overlay, FDGroup: "boot-0"},
				{Format: "raw", Path: base, FDGroup: "boot-1"},
			}}},
			ConsoleSocket: filepath.Join(dir, "console"),
			ConsoleLog:    filepath.Join(dir, "console.log"),
		},
		files: map[string][]*os.File{
			"boot-0": {openFile(t, overlay, unix.O_RDWR)},
			"boot-1": {openFile(t, base, unix.O_RDONLY)},
		},
	}
}

func openFile(t *testing.T, path string, flag int) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, flag, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}
