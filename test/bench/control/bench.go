package control

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/api"
	"github.com/nodevirt/nodevirt/test/apiserver"
)

// Options say what to measure.
type Options struct {
	// Checkout is the top of the source tree, with programs in bin/.
	Checkout string
	// Dir is an empty folder for what the daemons write.
	Dir string
	// Sizes are numbers of instances, each made in a namespace of its own, in turn.
	Sizes []int
	// Clients create instances at once.
	Clients int
}

// Figures are what came out.
type Figures struct {
	// Idle is the controller's memory with nothing to do.
	Idle Memory
	// Bursts are one for each size.
	Bursts []Burst
}

// Memory of a process, in bytes.
type Memory struct {
	RSS, PSS int64
}

// Burst is what it took to make the pods of some instances.
type Burst struct {
	Instances int
	// Applied is when the last instance was there, and Made the last pod, since
	// the first was asked for.
	Applied, Made time.Duration
	// Requests are those of the controller; Writes those to instances.
	Requests, Writes int
	// Memory is the controller's afterwards, with all instances so far.
	Memory Memory
}

// Rate is the pods that were made a second.
func (b Burst) Rate() float64 { return float64(b.Instances) / b.Made.Seconds() }

// settle is how long a process is left alone before its memory is looked at.
const settle = 10 * time.Second

// Run measures. It takes a minute and a half for 100 and 1,000 instances.
func Run(ctx context.Context, o Options) (Figures, error) {
	server, err := apiserver.Start(ctx, o.Dir, auditFlags(o.Dir)...)
	if err != nil {
		server.Close()
		return Figures{}, err
	}
	defer server.Close()
	var manifests []string
	for _, name := range []string{
		"crds/virtualmachines.yaml", "crds/virtualmachineinstances.yaml", "kubernetes/runtimeclass.yaml",
	} {
		manifests = append(manifests, filepath.Join(o.Checkout, "deploy", name))
	}
	if err := server.Apply(ctx, manifests...); err != nil {
		return Figures{}, err
	}
	scheme, err := api.NewScheme()
	if err != nil {
		return Figures{}, err
	}
	c, err := client.New(server.Config(), client.Options{Scheme: scheme, Mapper: api.NewMapper(scheme)})
	if err != nil {
		return Figures{}, fmt.Errorf("reach the API server: %w", err)
	}
	p, err := startController(ctx, o, server)
	if err != nil {
		return Figures{}, err
	}
	defer p.stop()
	return measure(ctx, o, c, p)
}

func measure(ctx context.Context, o Options, c client.Client, p *controller) (Figures, error) {
	var f Figures
	if err := p.working(ctx, c); err != nil {
		return f, err
	}
	if err := sleep(ctx, settle); err != nil {
		return f, err
	}
	var err error
	if f.Idle, err = p.memory(); err != nil {
		return f, err
	}
	for _, n := range o.Sizes {
		b, err := burst(ctx, o, c, n)
		if err != nil {
			return f, err
		}
		if err := sleep(ctx, settle); err != nil {
			return f, err
		}
		if b.Memory, err = p.memory(); err != nil {
			return f, err
		}
		if b.Requests, b.Writes, err = countRequests(o.Dir, namespace(n)); err != nil {
			return f, err
		}
		f.Bursts = append(f.Bursts, b)
	}
	return f, nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
