package lifecycle

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/background"
	"github.com/nodevirt/nodevirt/shim/vm/table"
)

// dhcpKeeper keeps the dnsmasq of running VMs running. A guest that has its
// address does not need dnsmasq until it reboots.
type dhcpKeeper struct {
	network dhcp
	groups  Groups
	tasks   *background.Tasks
	log     *slog.Logger
	// rebooted is true while dnsmasq is away because its guest reboots.
	rebooted table.PerVM[*atomic.Bool]
}

func newDHCPKeeper(o Options) *dhcpKeeper {
	k := &dhcpKeeper{network: o.Network, groups: o.Groups, tasks: o.Tasks, log: o.Logger}
	k.rebooted.New = func(*table.VM) *atomic.Bool { return &atomic.Bool{} }
	return k
}

// servePause is the time before a dnsmasq that ended is started again.
const servePause = time.Second

// keep starts a running VM's dnsmasq again whenever it ends.
func (k *dhcpKeeper) keep(v *table.VM) {
	if plan := v.Record().Network; plan == nil || !plan.Served() {
		return
	}
	k.tasks.Run(func(ctx context.Context) {
		for k.keepOnce(ctx, v) {
			select {
			case <-ctx.Done():
			case <-v.Exited():
			case <-time.After(servePause):
			}
		}
	})
}

// keepOnce waits until dnsmasq has ended and starts it again. It reports whether
// to go on.
func (k *dhcpKeeper) keepOnce(ctx context.Context, v *table.VM) bool {
	r := v.Record()
	if r.State != record.Running || r.Network == nil {
		return false // it ended meanwhile
	}
	log := table.Logger(k.log, r)
	if err := k.network.Watch(ctx, *r.Network); ctx.Err() != nil {
		return false
	} else if err != nil {
		log.Error("watching dnsmasq failed", "error", err)
		return true
	}
	unlock, err := v.Lock(ctx)
	if err != nil {
		return false
	}
	defer unlock()
	if v.Record().State != record.Running {
		return false
	}
	if err := k.serve(ctx, r); err != nil {
		log.Error("starting dnsmasq again failed", "error", err)
		return ctx.Err() == nil
	}
	if !k.rebooted.Of(v).Swap(false) {
		log.Warn("dnsmasq had ended and was started again")
	}
	return true
}

func (k *dhcpKeeper) serve(ctx context.Context, r record.Container) error {
	pid, err := k.network.Serve(ctx, *r.Network)
	if err != nil {
		return err
	}
	return k.groups.Add(r, pid)
}

// forgetClient ends the dnsmasq of a guest that reboots, since the guest may come
// back as another DHCP client. The dnsmasq that keep starts next knows no client.
func (k *dhcpKeeper) forgetClient(ctx context.Context, v *table.VM) {
	unlock, err := v.Lock(ctx)
	if err != nil {
		return
	}
	defer unlock()
	r := v.Record()
	if r.State != record.Running || r.Network == nil {
		return
	}
	ended, err := k.network.Forget(ctx, *r.Network)
	if err != nil {
		table.Logger(k.log, r).Error("ending the dnsmasq of a guest that reboots failed", "error", err)
		return
	}
	if ended {
		k.rebooted.Of(v).Store(true)
	}
}
