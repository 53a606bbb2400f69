package domain

import (
	"context"

	"libvirt.org/go/libvirt"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// Stats are what libvirtd tells of a running domain, in its own units: times in
// ns, the balloon's amounts in KiB. What a domain's QEMU or guest does not tell
// is not set.
type Stats struct {
	VCPUs  []libvirt.DomainStatsVcpu
	Memory *libvirt.DomainStatsBalloon // nil where QEMU did not answer
	Disks  []libvirt.DomainStatsBlock
}

// statsAtOnce bounds the calls for stats that hang. The first one that meets a
// QEMU which does not answer waits for it; the next finds that domain busy and
// tells of the others.
const statsAtOnce = 4

// Stats reads the stats of all domains that run, by UUID, those that are not
// nodevirt's included.
func (d *Driver) Stats(ctx context.Context) (map[string]Stats, error) {
	const op, object = "read stats of", "domains"
	select {
	case d.stats <- struct{}{}:
	default:
		return nil, &failure{op: op, object: object, kind: ErrUnavailable}
	}
	type result struct {
		all map[string]Stats
		err error
	}
	done := make(chan result, 1)
	go func() {
		defer func() { <-d.stats }()
		// Not bound to ctx: the place is taken until libvirtd has answered.
		all, err := call(context.WithoutCancel(ctx), d, op, object, allStats)
		done <- result{all, err}
	}()
	select {
	case r := <-done:
		return r.all, r.err
	case <-ctx.Done():
		return nil, expired(ctx, op, object)
	}
}

func allStats(c *libvirt.Connect) (map[string]Stats, error) {
	raw, err := c.GetAllDomainStats(nil,
		libvirt.DOMAIN_STATS_VCPU|libvirt.DOMAIN_STATS_BALLOON|libvirt.DOMAIN_STATS_BLOCK,
		libvirt.CONNECT_GET_ALL_DOMAINS_STATS_ACTIVE|libvirt.CONNECT_GET_ALL_DOMAINS_STATS_NOWAIT)
	if err != nil {
		return nil, err
	}
	all := map[string]Stats{}
	for _, r := range raw {
		uuid, err := r.Domain.GetUUIDString()
		r.Domain.Free()
		if err != nil {
			continue // never: it is in the reply
		}
		all[uuid] = Stats{VCPUs: r.Vcpu, Memory: r.Balloon, Disks: r.Block}
	}
	return all, nil
}

// DiskNames returns the disks' names in the spec by their targets, which are
// libvirt's names.
func DiskNames(spec vmspec.Spec) map[string]string {
	all := map[string]string{}
	for _, d := range spec.Disks {
		all[d.Target] = d.Name
	}
	return all
}
