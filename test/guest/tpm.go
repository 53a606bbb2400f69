package guest

import (
	"fmt"
	"strings"
)

// TPM is that of a guest, which a shell in the guest speaks to.
type TPM struct {
	// Run runs a line in the guest's shell, and returns its output.
	Run func(line string) string
}

// tpmOwner is the hierarchy of the TPM's owner, who has no password.
const tpmOwner = "40000001"

// command sends a command to the TPM, and returns the answer. The command is hexadecimal: its code, its handles
// and what follows the password session, which is empty. See part 3 of the TPM 2.0 library.
func (t TPM) command(code, handles, parameters string) string {
	body := code + handles + "00000009" + "40000009" + "0000000000" + parameters
	command := fmt.Sprintf("8002%08x%s", 6+len(body)/2, body)
	var text strings.Builder
	for i := 0; i < len(command); i += 2 {
		text.WriteString(`\x` + command[i:i+2])
	}
	return strings.Join(strings.Fields(t.Run(`printf '`+text.String()+`' >/tmp/c; exec 3<>/dev/tpm0; dd bs=4096 count=1 </tmp/c >&3 2>/dev/null; `+
		`dd bs=4096 count=1 <&3 2>/dev/null | od -An -v -tx1`)), "")
}

// Store stores eight bytes at an index of the TPM's non-volatile memory, such as 01500001.
func (t TPM) Store(index, secret string) error {
	for _, answer := range []string{
		t.command("0000012a", tpmOwner, "0000"+"000e"+index+"000b"+"02060006"+"0000"+"0008"),
		t.command("00000137", tpmOwner+index, fmt.Sprintf("0008%x0000", secret)),
	} {
		if len(answer) < 20 || answer[12:20] != "00000000" {
			return fmt.Errorf("store at %s of the TPM: answer %q", index, answer)
		}
	}
	return nil
}

// Stored returns what is stored at an index; "" for nothing.
func (t TPM) Stored(index string) string {
	var secret []byte
	answer := t.command("0000014e", tpmOwner+index, "00080000")
	if len(answer) >= 48 {
		_, _ = fmt.Sscanf(answer[32:48], "%x", &secret)
	}
	return string(secret)
}
