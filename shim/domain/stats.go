package domain

import (
	"context"

	"libvirt.org/go/libvirt"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// Stats are libvirtd's statistics of a running domain, in libvirt's units: times in
// ns, the balloon's amounts in KiB. Values that QEMU or the guest does not report
// are not set.
type Stats struct {
	VCPUs  []libvirt.DomainStatsVcpu
	Memory *libvirt.DomainStatsBalloon // nil if QEMU did not answer
	Disks  []libvirt.DomainStatsBlock
}

// statsAtOnce is the maximum of calls for stats in progress. The first call on a
// QEMU that does not answer waits for it; the next finds that domain busy and
// reports the others.
const statsAtOnce = 4

// Stats returns the stats of all running domains, by UUID, also of those that are
// not nodevirt's.
func (o *Observer) Stats(ctx context.Context) (map[string]Stats, error) {
	const op, object = "read stats of", "domains"
	select {
	case o.stats <- struct{}{}:
	default:
		return nil, &failure{op: op, object: object, kind: ErrUnavailable}
	}
	type result struct {
		all map[string]Stats
		err error
	}
	done := make(chan result, 1)
	go func() {
		defer func() { <-o.stats }()
		// Not bound to ctx: the place is taken until libvirtd has answered.
		all, err := call(context.WithoutCancel(ctx), o.conn, op, object, allStats)
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
			continue // impossible: the reply has it
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
