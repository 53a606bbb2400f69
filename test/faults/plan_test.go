//go:build faults

package faults

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/nodevirt/nodevirt/test/node"
)

// What can be killed beside the node's components.
const (
	ownQEMU       = "QEMU"
	ownDnsmasq    = "dnsmasq"
	ownVirtiofsd  = "virtiofsd"
	steadyDnsmasq = "dnsmasq of a steady guest"
	ownView       = "what shows the disk"
	steadyView    = "what shows the disk of a steady guest"
)

var victims = []string{
	node.Shim, node.Shim, node.Shim, node.Libvirtd, node.Libvirtd, node.Containerd, node.Containerd,
	ownQEMU, ownDnsmasq, steadyDnsmasq,
}

// iscsiVictims are those of a pod whose disk is served over iSCSI, and of all the rest that serves it.
var iscsiVictims = append([]string{node.Tgtd, node.Tgtd, node.Tgtd, ownView, steadyView}, victims...)

// kill is the SIGKILL of a victim some time after its call began.
type kill struct {
	victim string
	after  time.Duration
}

func (k kill) String() string { return fmt.Sprintf("%s killed after %s", k.victim, k.after) }

// plan is a round. It depends on nothing but its seed.
type plan struct {
	seed  uint64
	iscsi bool // the pod's disk is served to it
	calls []call
	at    int // index of the call with the faults
	kills []kill
	// full is "" or what the shim's disk runs out of, but for so much.
	full string
	room int
}

func newPlan(seed uint64) plan {
	r := rand.New(rand.NewPCG(seed, 0))
	p := plan{seed: seed, calls: life, iscsi: r.IntN(2) == 0}
	hit := victims
	if p.iscsi {
		hit = iscsiVictims
	}
	if r.IntN(2) == 0 {
		p.calls = slices.Delete(slices.Clone(life), ending, podEnd)
	}
	p.at = r.IntN(len(p.calls))
	if p.calls[p.at].usual < 10*time.Millisecond && r.IntN(2) == 0 {
		p.at = r.IntN(started) // calls that change something are of more interest
	}
	n := 1 + r.IntN(2)
	if p.iscsi && r.IntN(4) == 0 {
		n++ // what a disk hangs from has more parts
	}
	switch r.IntN(10) {
	case 0:
		p.full, p.room = "space", r.IntN(48)<<12
	case 1:
		p.full, p.room = "inodes", r.IntN(8)
	}
	if p.full != "" {
		n = r.IntN(2)
	}
	for len(p.kills) < n {
		v := hit[r.IntN(len(hit))]
		if slices.ContainsFunc(p.kills, func(k kill) bool { return k.victim == v }) {
			continue
		}
		most := p.calls[p.at].usual * 11 / 10
		p.kills = append(p.kills, kill{v, time.Duration(r.Int64N(int64(most))).Round(100 * time.Microsecond)})
	}
	slices.SortFunc(p.kills, func(a, b kill) int { return int(a.after - b.after) })
	return p
}

func (p plan) String() string {
	var parts []string
	if p.full != "" {
		parts = append(parts, fmt.Sprintf("disk out of %s but for %d", p.full, p.room))
	}
	for _, k := range p.kills {
		parts = append(parts, k.String())
	}
	end := "the container removed first"
	if len(p.calls) < len(life) {
		end = "the pod stopped with its container"
	}
	disk := "a file"
	if p.iscsi {
		disk = "over iSCSI"
	}
	return fmt.Sprintf("seed %d: in %s, disk %s: %s (%s)", p.seed, p.calls[p.at].name, disk, strings.Join(parts, ", "), end)
}
