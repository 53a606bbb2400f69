package netsetup

import (
	"encoding/json"
	"net/netip"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A VM that was started by an older version is still there after an upgrade.
func TestPlanOfRecordsOfVersion1(t *testing.T) {
	text, err := os.ReadFile("testdata/plan-v1.json")
	if err != nil {
		t.Fatal(err)
	}
	var got Plan
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	want := Plan{
		ID: idA, Netns: "/run/netns/cni-1", Hostname: "web",
		Nameservers: addrs("10.96.0.10"), Searches: []string{"svc.cluster.local"},
		NICs: []NIC{{
			Interface: "eth0", Bridge: "nvbr0", Tap: "nva1b2c3d4e5f",
			GuestMAC: MAC{2, 0, 0, 0, 0, 1}, PodMAC: MAC{2, 0, 0, 0, 0, 2},
			OriginalMAC: MAC{2, 0, 0, 0, 0, 1}, BridgeMAC: MAC{2, 0, 0, 0, 0, 3}, MTU: 1400,
			IPv4: Addressing{
				Address: netip.MustParsePrefix("10.88.1.2/24"), Gateway: netip.MustParseAddr("10.88.1.1"),
				Pod:    netip.MustParsePrefix("169.254.75.10/32"),
				Routes: []Route{{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParseAddr("10.88.1.7")}},
			},
			Original: Snapshot{Up: true, Addresses: []SavedAddress{{
				Address: netip.MustParsePrefix("10.88.1.2/24"), Broadcast: netip.MustParseAddr("10.88.1.255"),
				Label: "eth0", Valid: 4294967295, Preferred: 4294967295,
			}}},
		}},
	}
	if diff := cmp.Diff(want, got, compareAddrs); diff != "" {
		t.Errorf("plan (-want +got):\n%s", diff)
	}
	if err := got.check(); err != nil {
		t.Error(err)
	}
}
