package control

import (
	"context"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/api"
)

// transitions records when each object was created, and when its VMI was seen to run.
type transitions struct {
	mu      sync.Mutex
	created map[client.ObjectKey]time.Time
	running map[client.ObjectKey]time.Time
	changed chan struct{} // has an element after a VMI has begun to run
}

// watchTransitions watches all VMIs until the context ends.
func (r *rig) watchTransitions(ctx context.Context) (*transitions, error) {
	t := &transitions{
		created: map[client.ObjectKey]time.Time{}, running: map[client.ObjectKey]time.Time{}, changed: make(chan struct{}, 1),
	}
	scheme := r.client.Scheme()
	c, err := cache.New(r.server.Config(), cache.Options{
		Scheme: scheme, Mapper: api.NewMapper(scheme), DefaultTransform: keepPhase,
	})
	if err != nil {
		return nil, fmt.Errorf("watch VMIs: %w", err)
	}
	informer, err := c.GetInformer(ctx, new(kubevirt.VirtualMachineInstance), cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("watch VMIs: %w", err)
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { t.see(o.(*kubevirt.VirtualMachineInstance)) },
		UpdateFunc: func(_, o any) { t.see(o.(*kubevirt.VirtualMachineInstance)) },
	})
	if err != nil {
		return nil, fmt.Errorf("watch VMIs: %w", err)
	}
	go func() { _ = c.Start(ctx) }() // it ends with the context
	if !c.WaitForCacheSync(ctx) {
		return nil, fmt.Errorf("watch VMIs: %w", context.Cause(ctx))
	}
	return t, nil
}

// keepPhase keeps an instance's name and phase.
func keepPhase(o any) (any, error) {
	vmi, ok := o.(*kubevirt.VirtualMachineInstance)
	if !ok {
		return o, nil
	}
	return &kubevirt.VirtualMachineInstance{
		ObjectMeta: metav1.ObjectMeta{Namespace: vmi.Namespace, Name: vmi.Name, UID: vmi.UID, ResourceVersion: vmi.ResourceVersion},
		Status:     kubevirt.VirtualMachineInstanceStatus{Phase: vmi.Status.Phase},
	}, nil
}

func (t *transitions) see(vmi *kubevirt.VirtualMachineInstance) {
	if vmi.Status.Phase != kubevirt.Running {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	key := client.ObjectKeyFromObject(vmi)
	if _, seen := t.running[key]; seen {
		return
	}
	t.running[key] = time.Now()
	select {
	case t.changed <- struct{}{}:
	default:
	}
}

// create notes the time and creates an object.
func (t *transitions) create(ctx context.Context, c client.Client, o client.Object) error {
	t.mu.Lock()
	t.created[client.ObjectKeyFromObject(o)] = time.Now()
	t.mu.Unlock()
	return c.Create(ctx, o)
}

// took returns the seconds from creation to running of objects, and how many don't run yet.
func (t *transitions) took(keys []client.ObjectKey) (seconds []float64, missing int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, key := range keys {
		if end, ok := t.running[key]; ok {
			seconds = append(seconds, end.Sub(t.created[key]).Seconds())
		} else {
			missing++
		}
	}
	return seconds, missing
}

// stalled is how long no VMI may begin to run while some are awaited.
const stalled = 3 * time.Minute

// wait returns the times of objects once all run.
func (t *transitions) wait(ctx context.Context, keys []client.ObjectKey) ([]float64, error) {
	for {
		seconds, missing := t.took(keys)
		if missing == 0 {
			return seconds, nil
		}
		select {
		case <-t.changed:
		case <-time.After(stalled):
			return seconds, fmt.Errorf("%d of %d VMIs do not run, and none began to in %s", missing, len(keys), stalled)
		case <-ctx.Done():
			return seconds, fmt.Errorf("%d of %d VMIs do not run: %w", missing, len(keys), context.Cause(ctx))
		}
		if err := sleep(ctx, 20*time.Millisecond); err != nil {
			return seconds, err
		}
	}
}
