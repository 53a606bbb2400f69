package netsetup

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"net"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// tapDigits of an id are in the tap's name: as many as the kernel's 15 characters
// leave room for, with some to spare for suffixes that people add when they debug.
const tapDigits = 11

// Names come from strangers and end up in dnsmasq's config: what matches has no character
// that could end a value or a line.
var (
	idPattern        = regexp.MustCompile(`^[0-9a-f]{11,64}$`)
	interfacePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,14}$`)
	bridgePattern    = regexp.MustCompile(`^nvbr[0-9]$`)
	tapPattern       = regexp.MustCompile(`^nv[0-9a-f]{11}(\.[1-9])?$`)
	labelPattern     = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?$`)
	domainPattern    = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?` +
		`(\.[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?)*$`)
)

// bridgePrefix begins the bridges' names in each pod: namespaces keep them apart.
const bridgePrefix = "nvbr"

func bridgeName(card int) string { return bridgePrefix + strconv.Itoa(card) }

// tapName is the tap's name: it says whose it is to a person who reads "ip link".
func tapName(id string, card int) string {
	name := "nv" + id[:tapDigits]
	if card > 0 {
		name += "." + strconv.Itoa(card)
	}
	return name
}

func checkBridge(name string) error {
	if !bridgePattern.MatchString(name) {
		return fmt.Errorf("%q is no name of a machine's bridge", name)
	}
	return nil
}

// checkTap wants a name that is this machine's.
func checkTap(name, id string) error {
	if !tapPattern.MatchString(name) || len(id) < tapDigits || !strings.HasPrefix(name, tapName(id, 0)) {
		return fmt.Errorf("%q is no name of a tap of machine %s", name, id)
	}
	return nil
}

func checkID(id string) error {
	if !idPattern.MatchString(id) {
		return fmt.Errorf("machine id %q is not 11 to 64 lower-case hex digits", id)
	}
	return nil
}

func checkInterface(name string) error {
	if !interfacePattern.MatchString(name) || name == "lo" || bridgePattern.MatchString(name) {
		return fmt.Errorf("%q is no name of a pod's interface", name)
	}
	return nil
}

func checkNetns(path string) error {
	if path == "" {
		return fmt.Errorf("pod has no network namespace of its own: " +
			"a virtual machine needs one (no hostNetwork)")
	}
	if !filepath.IsAbs(path) {
		return fmt.Errorf("network namespace %q is no absolute path", path)
	}
	return nil
}

// setNames takes over host name and DNS settings after checking them.
func (p *Plan) setNames(pod Pod) error {
	p.Hostname, _, _ = strings.Cut(pod.Hostname, ".")
	if p.Hostname != "" && !labelPattern.MatchString(p.Hostname) {
		return fmt.Errorf("host name %q is no DNS name", pod.Hostname)
	}
	for _, server := range pod.Nameservers {
		if server = server.Unmap(); server.IsValid() && server.Zone() == "" {
			p.Nameservers = append(p.Nameservers, server)
		}
	}
	for _, search := range pod.Searches {
		domain := strings.TrimSuffix(search, ".")
		if domain == "" { // the root: what a resolver tries anyway
			continue
		}
		if len(domain) > 253 || !domainPattern.MatchString(domain) {
			return fmt.Errorf("search domain %q is no DNS name", search)
		}
		p.Searches = append(p.Searches, domain)
	}
	return nil
}

// MAC is an Ethernet address that is text in JSON.
type MAC net.HardwareAddr

func (m MAC) String() string { return net.HardwareAddr(m).String() }

// MarshalText implements encoding.TextMarshaler.
func (m MAC) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (m *MAC) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*m = nil
		return nil
	}
	mac, err := net.ParseMAC(string(text))
	if err != nil {
		return err
	}
	*m = MAC(mac)
	return nil
}

func (m MAC) equal(o net.HardwareAddr) bool { return bytes.Equal(m, o) }

func (m MAC) isZero() bool { return !slices.ContainsFunc(m, func(b byte) bool { return b != 0 }) }

// localMAC derives a locally administered unicast address from a machine's id and a role.
func localMAC(id, role string) MAC {
	sum := sha256.Sum256([]byte(role + "\x00" + id))
	return MAC{0x02, sum[0], sum[1], sum[2], sum[3], sum[4]}
}
