package record

import (
	"crypto/rand"
	"encoding/hex"
)

// NewID returns a random id of the same form as containerd's ids.
func NewID() string {
	id := make([]byte, 32)
	rand.Read(id) // never fails
	return hex.EncodeToString(id)
}
