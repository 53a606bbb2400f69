package guest

// Then is what a boot sector does after its line.
type Then int

const (
	// Halt sleeps for ever. Such a guest knows no ACPI: it ignores the power button.
	Halt Then = iota
	// PowerOff ends the machine.
	PowerOff
	// Restart resets the machine, again and again.
	Restart
	// Repeat writes the line again, without end and as fast as it can.
	Repeat
)

// BootSector is the least guest: a raw disk of 1 MiB with a boot sector that writes a line on the
// first serial port and then runs commands. It is up as soon as the firmware is, in 16 MiB of
// memory. Lines longer than 400 bytes are cut. PowerOff wants a q35 board.
func BootSector(line string, then Then) []byte {
	code := []byte{
		0x31, 0xc0, // xor ax, ax
		0x8e, 0xd8, // mov ds, ax
		0xfc,       // cld
		0xbe, 0, 0, // mov si, line (the address is filled in below)
		0xac,       // next: lodsb
		0x84, 0xc0, // test al, al
		0x74, 0x11, // jz then
		0x88, 0xc4, // mov ah, al
		0xba, 0xfd, 0x03, // mov dx, 0x3fd (line status)
		0xec,       // busy: in al, dx
		0xa8, 0x20, // test al, 0x20 (ready to send)
		0x74, 0xfb, // jz busy
		0x88, 0xe0, // mov al, ah
		0xb2, 0xf8, // mov dl, 0xf8 (dx = 0x3f8, data)
		0xee,       // out dx, al
		0xeb, 0xea, // jmp next
	}
	if then == Repeat {
		code = append(code, 0xeb, byte(5-len(code)-2)) // jmp to "mov si, line"
	}
	code = append(code, then.code()...)
	const origin, addressAt, most = 0x7c00, 6, 400
	address := origin + len(code)
	code[addressAt], code[addressAt+1] = byte(address), byte(address>>8)
	return bootable(code, line[:min(len(line), most)]+"\r\n\x00")
}

// code does what then says, and halts.
func (then Then) code() (code []byte) {
	switch then {
	case PowerOff:
		code = []byte{0xba, 0x04, 0x06, 0xb8, 0x00, 0x20, 0xef} // out 0x604, 0x2000: ACPI's S5
	case Restart:
		code = []byte{0xba, 0xf9, 0x0c, 0xb0, 0x06, 0xee} // out 0xcf9, 6: reset
	}
	return append(code, 0xf4, 0xeb, 0xfd) // halt: hlt; jmp halt
}

// bootable is a disk whose boot sector has code and, right behind it, text.
func bootable(code []byte, text string) []byte {
	disk := make([]byte, mebibyte) // the firmware boots none of less than a cylinder
	copy(disk[copy(disk, code):], text)
	disk[510], disk[511] = 0x55, 0xaa
	return disk
}
