package netsetup

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

// DHCPOptions are options of DHCPv4 that the VM's author chooses. As with the options of the pod,
// the guest gets those that it asks for.
type DHCPOptions struct {
	BootFile   string       `json:"bootFile,omitempty"`
	TFTPServer string       `json:"tftpServer,omitempty"`
	NTPServers []netip.Addr `json:"ntpServers,omitempty"`
	// Private are the texts of options for private use by their numbers, 224 to 254.
	Private map[uint8]string `json:"private,omitempty"`
}

// given reports whether there is an option.
func (o DHCPOptions) given() bool {
	return o.BootFile != "" || o.TFTPServer != "" || len(o.NTPServers)+len(o.Private) > 0
}

// The numbers of DHCP's options (RFC 2132, RFC 3942).
const (
	optionNTP        = 42
	optionTFTPServer = 66
	optionBootFile   = 67
	firstPrivate     = 224
	lastPrivate      = 254
)

// maxNTPServers keeps a line of dnsmasq's config shorter than 1024 bytes.
const maxNTPServers = 16

// optionText matches the text of an option. It has no character that ends a line.
var optionText = regexp.MustCompile(`^[ -~]*$`)

// optionQuoter escapes what means something in a quoted text of dnsmasq's config.
var optionQuoter = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// check returns an error for options that do not fit into dnsmasq's config.
func (o DHCPOptions) check() error {
	var errs []error
	for number, text := range o.texts() {
		if len(text) > maxOption || !optionText.MatchString(text) {
			errs = append(errs, fmt.Errorf("DHCP option %d: %q must be at most %d printable ASCII characters",
				number, text[:min(len(text), maxOption)], maxOption))
		}
	}
	for number := range o.Private {
		if number < firstPrivate || number > lastPrivate {
			errs = append(errs, fmt.Errorf("DHCP option %d is not one of %d to %d", number, firstPrivate, lastPrivate))
		}
	}
	for _, server := range o.NTPServers {
		if !server.Is4() {
			errs = append(errs, fmt.Errorf("NTP server %s has no IPv4 address", server))
		}
	}
	if len(o.NTPServers) > maxNTPServers {
		errs = append(errs, fmt.Errorf("%d NTP servers are more than %d", len(o.NTPServers), maxNTPServers))
	}
	return errors.Join(errs...)
}

// texts returns the texts by the numbers of their options.
func (o DHCPOptions) texts() map[uint8]string {
	all := maps.Clone(o.Private)
	if all == nil {
		all = map[uint8]string{}
	}
	if o.TFTPServer != "" {
		all[optionTFTPServer] = o.TFTPServer
	}
	if o.BootFile != "" {
		all[optionBootFile] = o.BootFile
	}
	return all
}

// values returns the options in dnsmasq's syntax. In quotes, dnsmasq does not read a number or an
// address from a text.
func (o DHCPOptions) values() []string {
	var all []string
	if len(o.NTPServers) > 0 {
		all = append(all, fmt.Sprintf("%d,%s", optionNTP, strings.Join(texts(o.NTPServers, maxNTPServers), ",")))
	}
	given := o.texts()
	for _, number := range slices.Sorted(maps.Keys(given)) {
		all = append(all, fmt.Sprintf(`%d,"%s"`, number, optionQuoter.Replace(given[number])))
	}
	return all
}
