package config

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Quantity is a number of bytes, written as a Kubernetes quantity ("256Mi").
type Quantity int64

// maxQuantity is the largest value. Fields have lower bounds; those of memory and
// logs have maxPlain.
const (
	maxQuantity = 1 << 60
	maxPlain    = 1 << 40
	// minDiskSize permits disks with little more than a boot sector. maxDiskSize is
	// the limit of a qcow2 overlay with QEMU's default clusters, by its longest L1 table.
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

// Duration is a duration in Go's syntax ("90s", "4h").
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

// String returns the duration without trailing zero units.
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
