package config

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Quantity is an amount of bytes, written as Kubernetes does ("256Mi").
type Quantity int64

// maxQuantity is the most that can be written. The most that a field takes is less; of the memory
// and the logs of a machine it is maxPlain.
const (
	maxQuantity = 1 << 60
	maxPlain    = 1 << 40
	// minDiskSize lets boot sectors through; maxDiskSize is what a qcow2 overlay of QEMU's usual
	// clusters can hold, by its longest L1 table.
	minDiskSize = 1 << 20
	maxDiskSize = 1 << 51
)

// UnmarshalText implements encoding.TextUnmarshaler.
func (q *Quantity) UnmarshalText(text []byte) error {
	if len(text) > 32 {
		return fmt.Errorf("not a quantity such as 256Mi")
	}
	v, err := resource.ParseQuantity(string(text))
	if err != nil || v.Sign() < 0 || v.CmpInt64(maxQuantity) > 0 {
		return fmt.Errorf("%q is not a quantity such as 256Mi, of at most 1Ei", text)
	}
	*q = Quantity(v.Value())
	return nil
}

// Duration is a length of time, written as Go does ("90s", "4h").
type Duration time.Duration

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("not a duration such as 90s or 4h")
	}
	*d = Duration(v)
	return nil
}

// String is a duration without the zeroes at its end.
func (d Duration) String() string {
	s := time.Duration(d).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }
