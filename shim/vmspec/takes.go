package vmspec

import (
	"net"
	"net/netip"
	"path"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/util/validation/field"
	utilnet "k8s.io/utils/net"

	"github.com/nodevirt/nodevirt/shim/fields"
)

const (
	// These bound network cards, input devices, and devices that report a guest's panic.
	maxInterfaces   = 8
	maxInputs       = 8
	maxPanicDevices = 2
	// maxACPIIndex is QEMU's.
	maxACPIIndex = 16383
	// maxSerial is SCSI's, long enough for a UUID.
	maxSerial = 36
	// maxKernelArgs is x86's COMMAND_LINE_SIZE, with its final NUL.
	maxKernelArgs = 2047
	// maxPortRanges is KubeVirt's.
	maxPortRanges = 10
	// maxDHCPText is the length of a DHCP option.
	maxDHCPText = 255
	// These are DHCP's options for private use (RFC 3942) that KubeVirt has.
	firstPrivate, lastPrivate = 224, 254
	hexUUID                   = `[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}`
)

var (
	serial     = fields.Match(`[A-Za-z0-9_.+-]+`, maxSerial)
	smbiosText = fields.Match(`[!-~]([ -~]*[!-~])?`, 64)
	tag        = fields.Match(`[A-Za-z0-9_-]+`, fields.MaxLabel)
	pciAddress = fields.Match(`0000:[0-9a-fA-F]{2}:[01][0-9a-fA-F]\.[0-7]`, 12) // a VM has one domain
	deviceName = fields.Match(`[A-Za-z0-9_-]+`, fields.MaxLabel)
	imagePath  = fields.String(func(at *field.Path, s string) *field.Error {
		if len(s) > 4095 || !path.IsAbs(s) || path.Clean(s) != s ||
			strings.ContainsFunc(s, unicode.IsControl) {
			return invalid(at, s, "must be an absolute path to a file without relative components")
		}
		return nil
	})
	kernelArgs = fields.String(func(at *field.Path, s string) *field.Error {
		if len(s) > maxKernelArgs || strings.ContainsFunc(s, unicode.IsControl) {
			return invalid(at, s, "must be one line of at most %d bytes", maxKernelArgs)
		}
		return nil
	})
	mac = fields.String(func(at *field.Path, s string) *field.Error {
		address, err := net.ParseMAC(s)
		if err != nil || len(address) != 6 || address[0]&1 != 0 || address.String() == noMAC {
			return invalid(at, s, "must be a unicast MAC address such as 02:00:00:00:00:01")
		}
		return nil
	})
)

// What more than one kind of object may say of a machine.
var (
	cpuModel    = fields.Match(`[A-Za-z0-9][A-Za-z0-9_.-]*`, 64)
	cpuFeature  = fields.Match(`[a-z0-9][a-z0-9_.-]*`, 64)
	cpuPolicy   = fields.OneOf("force", "require", "optional", "disable", "forbid")
	machineType = fields.Match(`q35|pc|virt|(pc-q35|pc-i440fx|virt)-[a-z0-9][a-z0-9._-]*`, 40)
	diskBus     = fields.OneOf(BusVirtio, BusSATA, BusSCSI, BusUSB)
	cdromBus    = fields.OneOf(BusSATA, BusSCSI)
	diskCache   = fields.OneOf("none", "writethrough", "writeback")
	diskIO      = fields.OneOf("native", "threads", "default")
	cardModel   = fields.OneOf("virtio", transitional, "e1000", "e1000e", "rtl8139")
)

// dhcpText is the text of a DHCP option.
var dhcpText = fields.Match(`[ -~]*`, maxDHCPText)

// address4 takes an IPv4 address, as KubeVirt does also one whose numbers have leading zeros.
var address4 = fields.String(func(at *field.Path, s string) *field.Error {
	if utilnet.ParseIPSloppy(s).To4() == nil {
		return invalid(at, s, "must be an IPv4 address")
	}
	return nil
})

// noReservation takes false. The kernel lets only root reserve a SCSI device, and QEMU is
// another user.
func noReservation(at *field.Path, value any) *field.Error {
	if value == true {
		return refused(at, "true: not supported; use false or leave it out: only root can reserve SCSI devices")
	}
	return fields.Boolean(at, value)
}

var (
	network4 = cidr("IPv4", 8, 30)
	network6 = cidr("IPv6", 64, 126)
)

// cidr takes a network with room for its own address, the pod's and the guest's.
func cidr(family string, shortest, longest int) fields.Takes {
	return fields.String(func(at *field.Path, s string) *field.Error {
		p, err := parseCIDR(s)
		if err != nil || p.Addr().Is4() != (family == "IPv4") || p.Addr().Is4In6() ||
			p.Bits() < shortest || p.Bits() > longest {
			return invalid(at, s, "must be an %s network with a length from %d to %d", family, shortest, longest)
		}
		return nil
	})
}

// parseCIDR reads a network as KubeVirt does: an IPv4 one may have numbers with leading zeros, which
// stay decimal.
func parseCIDR(s string) (netip.Prefix, error) {
	if strings.Contains(s, ":") {
		return netip.ParsePrefix(s)
	}
	_, network, err := utilnet.ParseCIDRSloppy(s)
	if err != nil {
		return netip.Prefix{}, err
	}
	return netip.ParsePrefix(network.String())
}

const noMAC = "00:00:00:00:00:00"

// secretText takes what may hold passwords, and shows nothing of it.
func secretText(at *field.Path, value any) *field.Error {
	given := "a number"
	switch value.(type) {
	case string:
		return fields.Text(maxAnnotations)(at, value)
	case map[string]any:
		given = "an object"
	case []any:
		given = "a list"
	case bool:
		given = "a boolean"
	}
	return field.TypeInvalid(at, field.OmitValueType{}, "must be a string, not "+given)
}
