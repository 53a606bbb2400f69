package netsetup

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// tapDigits is how many digits of an id are in a tap's name. The kernel allows 15 characters; the
// rest is room for the card's number.
const tapDigits = 11

// Names come from pods and end up in dnsmasq's config. A name that matches has no character
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

// bridgePrefix is the prefix of the bridges' names. Each pod has its own namespace for them.
const bridgePrefix = "nvbr"

func bridgeName(card int) string { return bridgePrefix + strconv.Itoa(card) }

// tapName returns the name of a card's tap. In the output of "ip link" it leads to the VM's container.
func tapName(id string, card int) string {
	name := "nv" + id[:tapDigits]
	if card > 0 {
		name += "." + strconv.Itoa(card)
	}
	return name
}

func checkBridge(name string) error {
	if !bridgePattern.MatchString(name) {
		return fmt.Errorf("%q is not the name of a VM's bridge", name)
	}
	return nil
}

// checkTap returns an error if name is not that of a tap of the VM id.
func checkTap(name, id string) error {
	if !tapPattern.MatchString(name) || len(id) < tapDigits || !strings.HasPrefix(name, tapName(id, 0)) {
		return fmt.Errorf("%q is not the name of a tap of VM %s", name, id)
	}
	return nil
}

func checkID(id string) error {
	if !idPattern.MatchString(id) {
		return fmt.Errorf("VM id %q is not 11 to 64 lower-case hex digits", id)
	}
	return nil
}

func checkInterface(name string) error {
	if !interfacePattern.MatchString(name) || name == "lo" || bridgePattern.MatchString(name) {
		return fmt.Errorf("%q is not a valid name of a pod's interface", name)
	}
	return nil
}

func checkNetns(path string) error {
	if path == "" {
		return errors.New("pod shares the node's network namespace; remove hostNetwork")
	}
	if !filepath.IsAbs(path) {
		return fmt.Errorf("network namespace %q is not an absolute path", path)
	}
	return nil
}

// setNames checks the pod's host name and DNS settings and adds them to the Plan.
func (p *Plan) setNames(pod Pod) error {
	p.Hostname, _, _ = strings.Cut(pod.Hostname, ".")
	if p.Hostname != "" && !labelPattern.MatchString(p.Hostname) {
		return fmt.Errorf("host name %q is not a DNS name", pod.Hostname)
	}
	for _, server := range pod.Nameservers {
		if server = server.Unmap(); server.IsValid() && server.Zone() == "" {
			p.Nameservers = append(p.Nameservers, server)
		}
	}
	for _, search := range pod.Searches {
		domain := strings.TrimSuffix(search, ".")
		if domain == "" { // the root, which a resolver tries anyway
			continue
		}
		if len(domain) > 253 || !domainPattern.MatchString(domain) {
			return fmt.Errorf("search domain %q is not a DNS name", search)
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

// localMAC derives a locally administered unicast address from an identity and a role.
func localMAC(id, role string) MAC {
	sum := sha256.Sum256([]byte(role + "\x00" + id))
	return MAC{0x02, sum[0], sum[1], sum[2], sum[3], sum[4]}
}
