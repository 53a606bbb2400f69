package netpolicy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/knftables"
)

// Times of the agent.
const (
	settleTime = 50 * time.Millisecond // how long it collects changes of objects for one change of the table
	retryTime  = time.Second           // between two tries
	nftTime    = 10 * time.Second      // how long a run of nft may take
)

// Options say for which node Run enforces policies.
type Options struct {
	Node   string // its name
	Client kubernetes.Interface
	NFT    knftables.Interface // the table, of family inet, in the node's network namespace
	Log    *slog.Logger
}

// Run enforces policies until ctx ends. The table stays, so that a restart opens nothing.
func Run(ctx context.Context, o Options) error {
	factory := informers.NewSharedInformerFactory(o.Client, 0)
	pods, namespaces := factory.Core().V1().Pods(), factory.Core().V1().Namespaces()
	policies := factory.Networking().V1().NetworkPolicies()
	changed := make(chan struct{}, 1)
	notify := func() {
		select {
		case changed <- struct{}{}:
		default: // a change is pending already
		}
	}
	for _, informer := range []cache.SharedIndexInformer{pods.Informer(), namespaces.Informer(), policies.Informer()} {
		if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { notify() }, UpdateFunc: func(any, any) { notify() }, DeleteFunc: func(any) { notify() },
		}); err != nil {
			return fmt.Errorf("watch objects: %w", err)
		}
	}
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	for kind, synced := range factory.WaitForCacheSync(ctx.Done()) {
		if !synced {
			return fmt.Errorf("read all objects of %v: %w", kind, ctx.Err())
		}
	}
	read := func() (s state, err error) {
		s.node = o.Node
		var errs [3]error
		s.pods, errs[0] = pods.Lister().List(labels.Everything())
		s.namespaces, errs[1] = namespaces.Lister().List(labels.Everything())
		s.policies, errs[2] = policies.Lister().List(labels.Everything())
		return s, errors.Join(errs[:]...)
	}
	notify() // a cluster without policies has the table, too
	return o.follow(ctx, changed, read)
}

// follow writes the table again after each change, if its content is another.
func (o Options) follow(ctx context.Context, changed <-chan struct{}, read func() (state, error)) error {
	var current string
	var retry <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-retry:
		case <-changed:
			time.Sleep(settleTime)
		}
		retry = nil
		s, err := read()
		if err == nil {
			current, err = o.write(ctx, s, current)
		}
		if err != nil && ctx.Err() == nil {
			o.Log.Error("enforce policies", "error", err)
			retry = time.After(retryTime)
		}
	}
}

// write replaces the table with that of a state, unless that is current, and returns which it is then.
func (o Options) write(ctx context.Context, s state, current string) (string, error) {
	tx := o.NFT.NewTransaction()
	s.table(tx)
	next := tx.String()
	if next == current {
		return current, nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), nftTime)
	defer cancel()
	if err := o.NFT.Run(ctx, tx); err != nil {
		return current, fmt.Errorf("change the nft table: %w", err)
	}
	return next, nil
}
