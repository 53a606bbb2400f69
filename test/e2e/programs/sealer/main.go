// Sealer keeps a secret for a machine by its TPM (TPM 2.0 library, part 3). The input "seal SECRET" has it print the
// sealed secret, which "unseal SEALED" turns into the secret. The key that seals is the owner's primary one, which the
// TPM derives from its seed each time.
package main

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"log"
	"os"
	"strings"
	"syscall"
)

// Commands, the owner's hierarchy, and a session that needs no password.
const (
	createPrimary, create, load, unseal = 0x131, 0x153, 0x157, 0x15e

	owner   = 0x40000001
	session = "\x00\x00\x00\x09\x40\x00\x00\x09\x00\x00\x00\x00\x00"
)

var (
	// A storage key on the curve P-256, without a password.
	primary = bytes("0004 0000 0000 001a 0023 000b 00030072 0000 0006 0080 0043 0010 0003 0010 0000 0000 0000 00000000")
	// Of a sealed secret: neither it nor its parent can move to another TPM.
	public = bytes("000e 0008 000b 00000452 0000 0010 0000 0000 00000000")
)

func main() {
	log.SetFlags(0)
	input, err := io.ReadAll(os.Stdin)
	if err != nil {
		log.Fatal(err)
	}
	// The kernel's resource manager, which forgets the keys in the end. A file that Go opens does not wait for answers.
	fd, err := syscall.Open("/dev/tpmrm0", syscall.O_RDWR, 0)
	if err != nil {
		log.Fatal(err)
	}
	tpm := os.NewFile(uintptr(fd), "TPM")
	key, _ := ask(tpm, createPrimary, owner, true, primary)
	switch verb, text, _ := strings.Cut(strings.TrimSpace(string(input)), " "); verb {
	case "seal":
		sensitive := append(sized(nil), sized([]byte(text))...)
		_, sealed := ask(tpm, create, key, false, append(sized(sensitive), public...))
		private := part(sealed)
		fmt.Println(hex.EncodeToString(sealed[:len(private)+len(part(sealed[len(private):]))]))
	case "unseal":
		secret, _ := ask(tpm, load, key, true, bytes(text))
		_, found := ask(tpm, unseal, secret, false, nil)
		fmt.Println(string(part(found)[2:]))
	default:
		log.Fatalf("unknown command %q", verb)
	}
}

// ask sends a command for an object, and returns what the answer holds: the handle of a new object, if the command
// makes one, and the rest.
func ask(tpm io.ReadWriter, command, object uint32, made bool, parameters []byte) (handle uint32, rest []byte) {
	const header = 10
	text := []byte{0x80, 0x02, 0, 0, 0, 0}
	for _, n := range []uint32{command, object} {
		text = binary.BigEndian.AppendUint32(text, n)
	}
	text = append(append(text, session...), parameters...)
	binary.BigEndian.PutUint32(text[2:], uint32(len(text)))
	if _, err := tpm.Write(text); err != nil {
		log.Fatal(err)
	}
	answer := make([]byte, 4096)
	n, err := tpm.Read(answer)
	if err != nil || n < header {
		log.Fatalf("the TPM answers with %d bytes: %v", n, err)
	}
	if code := binary.BigEndian.Uint32(answer[6:]); code != 0 {
		log.Fatalf("the TPM refuses command %#x: %#x", command, code)
	}
	rest = answer[header:n]
	if made {
		handle, rest = binary.BigEndian.Uint32(rest), rest[4:]
	}
	return handle, rest[4:] // after the length of the parameters
}

// sized is a text with its length before it, and part such a text at the beginning of another.
func sized(text []byte) []byte {
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(text))), text...)
}

func part(of []byte) []byte { return of[:2+binary.BigEndian.Uint16(of)] }

// bytes reads hexadecimal digits.
func bytes(digits string) []byte {
	all, err := hex.DecodeString(strings.ReplaceAll(digits, " ", ""))
	if err != nil {
		log.Fatal(err)
	}
	return all
}
