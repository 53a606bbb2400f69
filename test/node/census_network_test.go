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
