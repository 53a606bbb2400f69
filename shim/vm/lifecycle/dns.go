package lifecycle

import (
	"bufio"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// dns is a pod's resolver settings.
type dns struct {
	servers  []netip.Addr
	searches []string
}

// podDNS returns what CRI says about a pod's DNS. If CRI says nothing, it returns
// the node's own settings, from the file resolvConf, as a container would get them.
func podDNS(config *runtimeapi.PodSandboxConfig, resolvConf string) (dns, error) {
	if d := config.GetDnsConfig(); len(d.GetServers())+len(d.GetSearches())+len(d.GetOptions()) > 0 {
		return dns{servers: addresses(d.GetServers()), searches: d.GetSearches()}, nil
	}
	f, err := os.Open(resolvConf)
	if err != nil {
		return dns{}, fmt.Errorf("read the node's DNS settings: %w", err)
	}
	defer f.Close()
	return readResolvConf(f)
}

// readResolvConf reads resolv.conf(5).
func readResolvConf(r io.Reader) (dns, error) {
	var d dns
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		switch f := strings.Fields(lines.Text()); {
		case len(f) < 2:
		case f[0] == "nameserver":
			d.servers = append(d.servers, addresses(f[1:2])...)
		case f[0] == "search", f[0] == "domain":
			d.searches = f[1:]
		}
	}
	if err := lines.Err(); err != nil {
		return dns{}, fmt.Errorf("read the node's DNS settings: %w", err)
	}
	return d, nil
}

// withSubdomain puts a pod's subdomain before the search domain of its namespace, as KubeVirt does, so that
// a guest knows its full name. Kubernetes leaves it out.
func withSubdomain(searches []string, subdomain, namespace string) []string {
	of := slices.IndexFunc(searches, func(s string) bool { return strings.HasPrefix(s, namespace+".svc.") })
	if subdomain == "" || of < 0 {
		return searches
	}
	full := subdomain + "." + searches[of]
	if slices.Contains(searches, full) {
		return searches
	}
	return append([]string{full}, searches...)
}

// addresses keeps the servers that a guest can reach. Loopback is the guest's own.
func addresses(texts []string) []netip.Addr {
	var all []netip.Addr
	for _, t := range texts {
		if a, err := netip.ParseAddr(t); err == nil && !a.IsLoopback() {
			all = append(all, a)
		}
	}
	return all
}
