package lifecycle

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/nodevirt/nodevirt/netsetup"
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

// servePause is the time before a dnsmasq that ended is started again, and lastServePause the longest one if that
// fails for a card of another pod, which may be gone.
const (
	servePause     = time.Second
	lastServePause = time.Minute
)

// keep starts a running VM's dnsmasq again whenever it ends, and those of the cards that the VM has got.
func (k *dhcpKeeper) keep(v *table.VM) {
	for _, plan := range v.Record().Networks() {
		k.keepOne(v, plan)
	}
}

// keepOne starts the dnsmasq of one of a running VM's networks again whenever it ends, until the VM or the
// network has.
func (k *dhcpKeeper) keepOne(v *table.VM, plan netsetup.Plan) {
	if !plan.Served() {
		return
	}
	longest := servePause
	if plan.ID != v.Record().ID {
		longest = lastServePause
	}
	k.tasks.Run(func(ctx context.Context) {
		for pause := servePause; ; pause = min(2*pause, longest) {
			again, served := k.keepOnce(ctx, v, plan.ID)
			if !again {
				return
			}
			if served {
				pause = servePause
			}
			select {
			case <-ctx.Done():
			case <-v.Exited():
			case <-time.After(pause):
			}
		}
	})
}

// keepOnce waits until a network's dnsmasq has ended and starts it again. It reports whether
// to go on, and whether dnsmasq runs.
func (k *dhcpKeeper) keepOnce(ctx context.Context, v *table.VM, id string) (again, served bool) {
	r := v.Record()
	plan, has := r.NetworkOf(id)
	if r.State != record.Running || !has {
		return false, false // it ended meanwhile
	}
	log := table.Logger(k.log, r)
	if err := k.network.Watch(ctx, plan); ctx.Err() != nil {
		return false, false
	} else if err != nil {
		log.Error("watching dnsmasq failed", "error", err)
		return true, false
	}
	unlock, err := v.Lock(ctx)
	if err != nil {
		return false, false
	}
	defer unlock()
	if r = v.Record(); r.State != record.Running {
		return false, false
	}
	if plan, has = r.NetworkOf(id); !has || !plan.Served() { // the VM has lost cards meanwhile
		return false, false
	}
	if err := k.serve(ctx, r, plan); err != nil {
		log.Error("starting dnsmasq again failed", "error", err)
		return ctx.Err() == nil, false
	}
	if !k.rebooted.Of(v).Swap(false) {
		log.Warn("dnsmasq had ended and was started again")
	}
	return true, true
}

func (k *dhcpKeeper) serve(ctx context.Context, r record.Container, plan netsetup.Plan) error {
	pid, err := k.network.Serve(ctx, plan)
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
	if r.State != record.Running {
		return
	}
	for _, plan := range r.Networks() {
		ended, err := k.network.Forget(ctx, plan)
		if err != nil {
			table.Logger(k.log, r).Error("ending the dnsmasq of a guest that reboots failed", "error", err)
			continue
		}
		if ended {
			k.rebooted.Of(v).Store(true)
		}
	}
}
