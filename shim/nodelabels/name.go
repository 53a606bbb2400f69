package nodelabels

import (
	"context"
	"log/slog"
	"time"

	"github.com/nodevirt/nodevirt/shim/kubelet"
)

// askAgain is the time between two requests for the node's name.
const askAgain = 30 * time.Second

// Name calls found with the node's name once the API server has said it: a node's name need not be its host name. The kubeconfig
// need not exist yet; with an empty path there is no name.
func Name(ctx context.Context, kubeconfig string, log *slog.Logger, found func(string)) {
	if kubeconfig != "" {
		untilNamed(ctx, kubelet.New(kubeconfig), log, found)
	}
}

// named knows the node's name; [kubelet.Client].
type named interface {
	NodeName(ctx context.Context) (string, error)
}

func untilNamed(ctx context.Context, api named, log *slog.Logger, found func(string)) {
	for logged := false; ctx.Err() == nil; {
		name, err := api.NodeName(ctx)
		if err == nil {
			found(name)
			return
		}
		if !logged && ctx.Err() == nil {
			log.Warn("the metrics have the host's name for the node's", "error", err)
			logged = true
		}
		select {
		case <-ctx.Done():
		case <-time.After(askAgain):
		}
	}
}
