package subresources

import (
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/api"
	"github.com/nodevirt/nodevirt/controller/control"
)

// Options configure the API.
type Options struct {
	// Caller returns the user of a request, as the API server's front proxy names it.
	Caller func(*http.Request) (user.Info, error)
	// Config is of the controller's own account.
	Config *rest.Config
	// Scheme has the objects that are read and written.
	Scheme *runtime.Scheme
	// Version is the controller's.
	Version string
	// GuestfsImage is the image of libguestfs-tools; empty for none.
	GuestfsImage string
	// Metrics gets those of connections; nil for none.
	Metrics prometheus.Registerer

	Log *slog.Logger
}

// Server is the API. Its parts serve the subresources.
type Server struct {
	Options
	// cluster says whether the API server answers.
	cluster kubernetes.Interface
	health  health

	authorizer *authorizer
	lifecycle  *lifecycle
	migrations *migrations
	volumes    *volumes
	dumps      *dumps
	controls   *controls
	streams    *streams
	shares     *shares
	expander   *expander
	graphs     *graphs
}

// New returns the API. Its requests wait for the API server only: the API server's priority and
// fairness decide.
func New(o Options) (*Server, error) {
	config := rest.CopyConfig(o.Config)
	config.QPS = -1
	cluster, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("set up the subresources' API: %w", err)
	}
	// The parts read and write at the API server. A cache may lag behind what a user has just
	// changed, and a replica that does not lead has none.
	objects, err := client.New(config, client.Options{Scheme: o.Scheme, Mapper: api.NewMapper(o.Scheme)})
	if err != nil {
		return nil, fmt.Errorf("set up the subresources' API: %w", err)
	}
	nodes := control.New(cluster, o.Config)
	found := &finder{objects: objects}
	authorizer := &authorizer{cluster: cluster}
	connections := newConnections(time.Now)
	if err := connections.register(o.Metrics); err != nil {
		return nil, err
	}
	return &Server{
		Options: o, cluster: cluster,
		authorizer: authorizer,
		lifecycle:  &lifecycle{objects: objects, found: found},
		migrations: &migrations{objects: objects, found: found},
		volumes:    &volumes{objects: objects, found: found},
		dumps:      &dumps{objects: objects, found: found},
		controls:   newControls(nodes, found),
		streams:    &streams{authorizer: authorizer, dialer: &dialer{nodes: nodes}, found: found, connections: connections},
		shares:     newShares(),
		expander:   &expander{objects: objects, found: found},
		graphs:     &graphs{objects: objects, found: found},
	}, nil
}
