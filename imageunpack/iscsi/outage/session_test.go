package outage

import (
	"encoding/binary"
	"net"
	"testing"
)

// pdu is a request with a tag and data.
func pdu(first, second byte, data string) []byte {
	h := make([]byte, 48, 48+len(data)+3)
	h[0], h[1], h[7] = first, second, byte(len(data))
	binary.BigEndian.PutUint32(h[atTag:], 7)
	return append(append(h, data...), make([]byte, -len(data)&3)...)
}

// FuzzSession has anything said to a dead end: what it answers is a target's.
func FuzzSession(f *testing.F) {
	login := pdu(opLogin|immediate, final|1, "InitiatorName=iqn.a\x00")
	f.Add(login)
	f.Add(append(login, pdu(opCommand, final, "")...))
	f.Add(append(pdu(opNopOut, final, "ping"), pdu(opTask, final, "")...))
	f.Add(append(pdu(opDataOut, final, "data"), pdu(opLogout, final, "")...))
	f.Add(pdu(0x3f, 0, ""))
	f.Fuzz(func(t *testing.T, said []byte) {
		here, there := net.Pipe()
		go func() {
			defer there.Close()
			s := session{conn: there}
			for s.step() == nil {
			}
		}()
		go func() {
			_, _ = here.Write(said)
			_ = here.Close()
		}()
		for {
			h, _, err := readPDU(here)
			if err != nil {
				return
			}
			if o := h.opcode(); o < opNopIn || o > opLogoutAnswer {
				t.Errorf("an answer of kind %#x", o)
			}
		}
	})
}
