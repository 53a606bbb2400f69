package vmspec

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"path"
	"regexp"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// takes says what is wrong with a decoded JSON value at a path; nil for nothing.
// An empty string is an unset one, as in the types of the API.
type takes func(at *field.Path, value any) *field.Error

const (
	// maxDevices bounds disks, volumes and every list without a bound of its own.
	maxDevices = 16
	// maxInterfaces bounds network cards.
	maxInterfaces = 8
	// maxSerial is SCSI's and SMBIOS's, long enough for a UUID.
	maxSerial = 36
	// maxKernelArgs is x86's COMMAND_LINE_SIZE, with its final NUL.
	maxKernelArgs = 2047
	hexUUID       = `[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}`
)

var (
	serial     = match(`[A-Za-z0-9_.+-]+`, maxSerial)
	deviceName = match(`[A-Za-z0-9_-]+`, maxLabel)
	label      = str(func(at *field.Path, s string) *field.Error {
		if len(validation.IsDNS1123Label(s)) > 0 {
			return invalid(at, s, "must be a DNS label: a-z, 0-9 and - inside, at most %d characters",
				maxLabel)
		}
		return nil
	})
	imagePath = str(func(at *field.Path, s string) *field.Error {
		if len(s) > 4095 || !path.IsAbs(s) || path.Clean(s) != s ||
			strings.ContainsFunc(s, unicode.IsControl) {
			return invalid(at, s, "must be an absolute path in the image, without . and ..")
		}
		return nil
	})
	kernelArgs = str(func(at *field.Path, s string) *field.Error {
		if len(s) > maxKernelArgs || strings.ContainsFunc(s, unicode.IsControl) {
			return invalid(at, s, "must be one line of at most %d bytes", maxKernelArgs)
		}
		return nil
	})
	mac = str(func(at *field.Path, s string) *field.Error {
		address, err := net.ParseMAC(s)
		if err != nil || len(address) != 6 || address[0]&1 != 0 || address.String() == noMAC {
			return invalid(at, s, "must be a unicast MAC address such as 02:00:00:00:00:01")
		}
		return nil
	})
)

// What more than one kind of object may say of a machine.
var (
	cpuModel    = match(`[A-Za-z0-9][A-Za-z0-9_.-]*`, 64)
	cpuFeature  = match(`[a-z0-9][a-z0-9_.-]*`, 64)
	cpuPolicy   = oneOf("force", "require", "optional", "disable", "forbid")
	machineType = match(`q35|pc|pc-(q35|i440fx)-[0-9]{1,2}\.[0-9]{1,2}`, 32)
	diskBus     = oneOf(BusVirtio, BusSATA, BusSCSI)
	cdromBus    = oneOf(BusSATA, BusSCSI)
	diskCache   = oneOf("none", "writethrough", "writeback")
	diskIO      = oneOf("native", "threads", "default")
	cardModel   = oneOf("virtio", "e1000", "e1000e", "rtl8139")
)

var (
	network4 = cidr("IPv4", 8, 30)
	network6 = cidr("IPv6", 64, 126)
)

// cidr takes a network with room for its own address, the pod's and the guest's.
func cidr(family string, shortest, longest int) takes {
	return str(func(at *field.Path, s string) *field.Error {
		p, err := netip.ParsePrefix(s)
		if err != nil || p.Addr().Is4() != (family == "IPv4") || p.Addr().Is4In6() ||
			p.Bits() < shortest || p.Bits() > longest {
			return invalid(at, s, "must be an %s network with a length from %d to %d", family, shortest, longest)
		}
		return nil
	})
}

const noMAC = "00:00:00:00:00:00"

// str takes a string that is empty or passes a check.
func str(check func(*field.Path, string) *field.Error) takes {
	return func(at *field.Path, value any) *field.Error {
		s, ok := value.(string)
		switch {
		case !ok:
			return wrongType(at, value, "a string")
		case s == "":
			return nil
		}
		return check(at, s)
	}
}

// text takes any string of up to limit bytes.
func text(limit int) takes {
	return str(func(at *field.Path, s string) *field.Error {
		if len(s) > limit {
			return field.TooLong(at, nil, limit)
		}
		return nil
	})
}

// secretText takes what may hold passwords, and shows nothing of it.
func secretText(at *field.Path, value any) *field.Error {
	given := "a number"
	switch value.(type) {
	case string:
		return text(maxAnnotations)(at, value)
	case map[string]any:
		given = "an object"
	case []any:
		given = "a list"
	case bool:
		given = "a boolean"
	}
	return field.TypeInvalid(at, field.OmitValueType{}, "must be a string, not "+given)
}

func match(pattern string, limit int) takes {
	whole := regexp.MustCompile(`^(?:` + pattern + `)$`)
	return str(func(at *field.Path, s string) *field.Error {
		if len(s) > limit || !whole.MatchString(s) {
			return invalid(at, s, "must match %s and have at most %d characters", pattern, limit)
		}
		return nil
	})
}

func oneOf[T ~string](values ...T) takes {
	return str(func(at *field.Path, s string) *field.Error {
		for _, v := range values {
			if s == string(v) {
				return nil
			}
		}
		return field.NotSupported(at, T(excerpt(s)), values)
	})
}

func integer(least, most int64) takes {
	return func(at *field.Path, value any) *field.Error {
		n, ok := value.(int64)
		if !ok {
			return wrongType(at, value, "a whole number")
		}
		if n < least || n > most {
			return invalid(at, n, "must be from %d to %d", least, most)
		}
		return nil
	}
}

func boolean(at *field.Path, value any) *field.Error {
	if _, ok := value.(bool); !ok {
		return wrongType(at, value, "true or false")
	}
	return nil
}

func only(want bool) takes {
	return func(at *field.Path, value any) *field.Error {
		if value == !want {
			return refused(at, "%t: not supported; use %t or leave it out", !want, want)
		}
		return boolean(at, value)
	}
}

// maxQuantity leaves room to count it in thousandths.
const maxQuantity = 1 << 50

// plainQuantity keeps out exponents that take long to compute with.
var plainQuantity = regexp.MustCompile(`^[0-9]{1,18}(\.[0-9]{1,9})?([mkKMGT]|[KMGT]i|[eE][0-9])?$`)

func quantity(at *field.Path, value any) *field.Error {
	s, ok := value.(string)
	if n, isInt := value.(int64); isInt {
		s, ok = fmt.Sprint(n), true
	}
	if !ok {
		return wrongType(at, value, "a quantity")
	}
	if !plainQuantity.MatchString(s) {
		return invalid(at, s, "must be a quantity such as 500m, 2, 512Mi or 1.5Gi")
	}
	q, err := resource.ParseQuantity(s)
	if err != nil || q.Sign() <= 0 {
		return invalid(at, s, "must be a quantity greater than 0")
	}
	if q.CmpInt64(maxQuantity) > 0 { // what doesn't fit an int64 reads as 0 later
		return invalid(at, s, "must be a quantity of at most %d", int64(maxQuantity))
	}
	return nil
}

func object(at *field.Path, value any) *field.Error {
	if _, ok := value.(map[string]any); !ok {
		return wrongType(at, value, "an object")
	}
	return nil
}

func list(limit int) takes {
	return func(at *field.Path, value any) *field.Error {
		l, ok := value.([]any)
		switch {
		case !ok:
			return wrongType(at, value, "a list")
		case len(l) > limit:
			return field.TooMany(at, len(l), limit)
		}
		return nil
	}
}

func wrongType(at *field.Path, value any, want string) *field.Error {
	shown, err := json.Marshal(value)
	if err != nil { // not of what a JSON decoder makes
		shown = fmt.Append(nil, value)
	}
	return field.TypeInvalid(at, field.OmitValueType{}, "must be "+want+", not "+excerpt(string(shown)))
}
