package guest

import "encoding/binary"

// The linear congruential generator that guest and host share; Numerical Recipes' parameters.
const (
	noiseSeed   = 0x6e6f6465
	noiseFactor = 1664525
	noiseTerm   = 1013904223
)

// NoiseSector is a raw disk like BootSector's, whose guest writes n bytes (not 0) of Noise on the
// first serial port and then runs commands. Repeat is not for it.
func NoiseSector(n uint32, then Then) []byte {
	code := append([]byte{0x66, 0xbb}, le(n)...)              // mov ebx, n
	code = append(append(code, 0x66, 0xb8), le(noiseSeed)...) // mov eax, seed
	next := len(code)
	code = append(append(code, 0x66, 0x69, 0xc0), le(noiseFactor)...) // next: imul eax, eax, factor
	code = append(append(code, 0x66, 0x05), le(noiseTerm)...)         // add eax, term
	code = append(code,
		0x66, 0x89, 0xc6, // mov esi, eax
		0xba, 0xfd, 0x03, // mov dx, 0x3fd (line status)
		0xec,       // busy: in al, dx
		0xa8, 0x20, // test al, 0x20 (ready to send)
		0x74, 0xfb, // jz busy
		0x66, 0x89, 0xf0, // mov eax, esi
		0x66, 0xc1, 0xe8, 0x18, // shr eax, 24
		0xb2, 0xf8, // mov dl, 0xf8 (dx = 0x3f8, data)
		0xee,             // out dx, al
		0x66, 0x89, 0xf0, // mov eax, esi
		0x66, 0x4b, // dec ebx
	)
	code = append(code, 0x75, byte(next-len(code)-2)) // jnz next
	return bootable(append(code, then.code()...), "")
}

func le(v uint32) []byte { return binary.LittleEndian.AppendUint32(nil, v) }

// Noise is what the guest of NoiseSector writes: bytes of all values, in no order.
func Noise(n int) []byte {
	out, state := make([]byte, n), uint32(noiseSeed)
	for i := range out {
		state = state*noiseFactor + noiseTerm
		out[i] = byte(state >> 24)
	}
	return out
}
