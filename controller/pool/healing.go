package pool

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/backoff"
)

const (
	// defaultThreshold and defaultDuration are KubeVirt's.
	defaultThreshold = 3
	defaultDuration  = 5 * time.Minute
)

// heals remembers how often in a row each VM of a pool was replaced. It does so in
// memory: a controller that starts replaces a failing VM without a wait.
type heals struct {
	mu  sync.Mutex
	all map[types.NamespacedName]map[string]heal
}

type heal struct {
	count int
	last  time.Time
}

// wait returns how long the next replacement of a VM must wait; 0 for not at all.
func (h *heals) wait(pool types.NamespacedName, vm string, now time.Time) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	was := h.all[pool][vm]
	return max(was.last.Add(backoff.Wait(was.count)).Sub(now), 0)
}

func (h *heals) note(pool types.NamespacedName, vm string, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.all == nil {
		h.all = map[types.NamespacedName]map[string]heal{}
	}
	if h.all[pool] == nil {
		h.all[pool] = map[string]heal{}
	}
	h.all[pool][vm] = heal{h.all[pool][vm].count + 1, now}
}

// healthy ends the count of a VM.
func (h *heals) healthy(pool types.NamespacedName, vm string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.all[pool], vm)
}

func (h *heals) forget(pool types.NamespacedName) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.all, pool)
}

// sick returns the VMs that must be replaced now, and notes when to look again.
func (r *Reconciler) sick(w *work) []*member {
	if w.pool.Spec.Autohealing == nil {
		return nil
	}
	key := client.ObjectKeyFromObject(w.pool)
	var all []*member
	for _, m := range w.active {
		if m.vmi != nil && backoff.RunTime(m.vmi, w.now) >= backoff.Steady {
			r.heals.healthy(key, m.vm.Name)
		}
		after, fails := failing(w.pool, m, w.now)
		if !fails {
			continue
		}
		if after = max(after, r.heals.wait(key, m.vm.Name, w.now)); after == 0 {
			all = append(all, m)
		} else {
			w.lookAfter(after)
		}
	}
	return all
}

// failing reports whether a VM cannot start, and after how long it must be replaced:
// at once if it has failed often enough, or for long enough.
func failing(pool *vmPool, m *member, now time.Time) (after time.Duration, fails bool) {
	threshold, least := defaultThreshold, defaultDuration
	if n := pool.Spec.Autohealing.StartUpFailureThreshold; n != nil {
		threshold = int(*n)
	}
	if d := pool.Spec.Autohealing.MinFailingToStartDuration; d != nil {
		least = d.Duration
	}
	if f := m.vm.Status.StartFailure; f != nil && f.ConsecutiveFailCount >= threshold {
		return 0, true
	}
	switch m.vm.Status.PrintableStatus {
	case kubevirt.VirtualMachineStatusCrashLoopBackOff, kubevirt.VirtualMachineStatusUnschedulable,
		kubevirt.VirtualMachineStatusErrImagePull, kubevirt.VirtualMachineStatusImagePullBackOff,
		kubevirt.VirtualMachineStatusPvcNotFound, kubevirt.VirtualMachineStatusDataVolumeError:
		return max(m.failingSince(now).Add(least).Sub(now), 0), true
	}
	return 0, false
}

// failingSince returns when a VM began to fail: when it was last ready, but not before
// the first failure and its last start. A VM that was off for a day has not failed for
// a day.
func (m *member) failingSince(now time.Time) time.Time {
	since, failed := now, false
	for _, c := range m.vm.Status.Conditions {
		if c.Type == kubevirt.VirtualMachineReady && c.Status == corev1.ConditionFalse {
			since = c.LastTransitionTime.Time
		}
	}
	for _, c := range m.vm.Status.Conditions {
		if c.Type == kubevirt.VirtualMachineFailure && c.Status == corev1.ConditionTrue && c.LastTransitionTime.After(since) {
			since, failed = c.LastTransitionTime.Time, true
		}
	}
	if !failed && m.vmi != nil && m.vmi.CreationTimestamp.After(since) {
		since = m.vmi.CreationTimestamp.Time
	}
	return since
}

// replaceSick deletes a VM with all its state. Its successor has its name.
func (r *Reconciler) replaceSick(ctx context.Context, w *work, m *member) error {
	if err := r.remove(ctx, w.pool, m.vm); err != nil {
		return err
	}
	r.heals.note(client.ObjectKeyFromObject(w.pool), m.vm.Name, w.now)
	r.events.Eventf(w.pool, m.vm, corev1.EventTypeWarning, "Autohealing", "Replace",
		"Replacing VM %s/%s, which cannot start: %s", m.vm.Namespace, m.vm.Name, m.vm.Status.PrintableStatus)
	return nil
}
