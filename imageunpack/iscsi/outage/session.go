package outage

import (
	"fmt"
	"net"
	"time"
)

// session is the session of an initiator with a dead end.
type session struct {
	conn     net.Conn
	answered uint32 // StatSN: the number of answers
}

// window is how many commands an initiator may have in progress.
const window = 128

// broken is the sense data of a failed command (SPC-4, 4.5.3): a hardware error, logical unit failure.
var broken = []byte{0, 18, 0x70, 0, 0x04, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x3e, 0x01, 0, 0, 0, 0}

// step answers one request. Each error ends the session.
func (s *session) step() error {
	if err := s.conn.SetDeadline(time.Now().Add(idleTime)); err != nil {
		return err
	}
	h, data, err := readPDU(s.conn)
	if err != nil {
		return err
	}
	switch h.opcode() {
	case opLogin:
		return s.login(h)
	case opCommand:
		if h[32] == testUnitReady {
			return s.answer(h, opCommandAnswer, nil)
		}
		return s.fail(h)
	case opNopOut:
		if h.number(atTag) == noTag {
			return nil // an answer without a request
		}
		return s.answer(h, opNopIn, data)
	case opTask:
		return s.answer(h, opTaskAnswer, nil)
	case opLogout:
		return s.answer(h, opLogoutAnswer, nil)
	case opDataOut:
		return nil // data of a command that has failed already
	}
	return fmt.Errorf("an initiator sends a PDU of kind %#x", h.opcode())
}

// login accepts the parameters of an initiator, without a password and without digests.
func (s *session) login(h header) error {
	a := s.head(h, opLoginAnswer)
	stage := h[1] >> 2 & 3
	a[1] = h[1] & (final | 0x0f)
	a[2] = 0
	copy(a[8:16], h[8:16])
	if a[1]&final != 0 && a[1]&3 == stageFull {
		a[14], a[15] = 0, 1 // the target numbers a new session
	}
	text := "AuthMethod=None\x00TargetPortalGroupTag=1\x00"
	if stage == stageOperational {
		text = "HeaderDigest=None\x00DataDigest=None\x00ErrorRecoveryLevel=0\x00MaxConnections=1\x00"
	}
	return s.send(a, []byte(text))
}

// answer reports that a request has completed.
func (s *session) answer(h header, opcode byte, data []byte) error {
	a := s.head(h, opcode)
	if opcode == opNopIn {
		a.set(atTransfer, noTag)
	}
	return s.send(a, data)
}

// fail answers a command with an error of the disk.
func (s *session) fail(h header) error {
	a := s.head(h, opCommandAnswer)
	a[3] = statusCheck
	return s.send(a, broken)
}

// head returns the header of an answer, with the sequence numbers that let the initiator continue.
func (s *session) head(h header, opcode byte) header {
	var a header
	a[0], a[1] = opcode, final
	copy(a[atTag:atTag+4], h[atTag:])
	next := h.number(atCommand)
	if h[0]&immediate == 0 {
		next++
	}
	a.set(atStatus, s.answered)
	a.set(atExpected, next)
	a.set(atMost, next+window)
	return a
}

func (s *session) send(a header, data []byte) error {
	s.answered++
	return writePDU(s.conn, a, data)
}
