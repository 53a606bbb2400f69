package node

import (
	"testing"

	"gotest.tools/v3/assert"
)

func TestNested(t *testing.T) {
	const ruleset = `# Warning: table ip nat is managed by iptables-nft, do not touch!
table ip nat {
	chain POSTROUTING {
		type nat hook postrouting priority srcnat; policy accept;
		ip saddr 10.88.0.2 jump CNI-1
	}

	chain CNI-1 {
	}
}
table inet empty {
}
`
	assert.DeepEqual(t, nested(ruleset), []string{
		"table ip nat",
		"table ip nat: chain POSTROUTING",
		"table ip nat: chain POSTROUTING: type nat hook postrouting priority srcnat; policy accept;",
		"table ip nat: chain POSTROUTING: ip saddr 10.88.0.2 jump CNI-1",
		"table ip nat: chain CNI-1",
		"table inet empty",
	})
}

// TestProxys: of a cluster's kube-proxy nothing is compared, and all that it would hide of others is.
func TestProxys(t *testing.T) {
	for line, passed := range map[string]bool{
		"table ip kube-proxy": true, "table ip6 kube-proxy: chain service-ABC-default/web/tcp/": true,
		"table ip nat: chain CNI-0123": false, "table ip nat: chain POSTROUTING: jump kube-proxy": false, "table ip kube-proxy2": false,
	} {
		assert.Equal(t, proxys.MatchString(line), passed, line)
	}
}
