package tracing

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
)

// Options are an administrator's settings, and the name of the program.
type Options struct {
	// Endpoint is the collector's OTLP receiver for gRPC, HOST:PORT; empty disables tracing.
	Endpoint string
	// Ratio is the part of traces without a caller's decision that are exported, 0 to 1.
	Ratio float64
	// Insecure connects without TLS.
	Insecure bool
	// CA is the path of the certificates that the collector's is checked against, in PEM;
	// empty for the system's.
	CA string

	// Service and Version name the program, and Host its node or pod.
	Service, Version, Host string
}

// Problem is a setting that cannot be used.
type Problem struct {
	// Field is endpoint, ratio or ca.
	Field string
	Err   error
}

// Problems returns what is wrong with the settings.
func (o Options) Problems() []Problem {
	var all []Problem
	if o.Endpoint != "" {
		host, port, err := net.SplitHostPort(o.Endpoint)
		if n, perr := strconv.ParseUint(port, 10, 16); err != nil || perr != nil || host == "" || n == 0 {
			all = append(all, Problem{"endpoint", fmt.Errorf("%q is not HOST:PORT, such as collector.example.com:4317", o.Endpoint)})
		}
	}
	if !(o.Ratio >= 0 && o.Ratio <= 1) { // NaN included
		all = append(all, Problem{"ratio", fmt.Errorf("%v is not between 0 and 1", o.Ratio)})
	}
	switch {
	case o.CA == "":
	case o.Insecure:
		all = append(all, Problem{"ca", errors.New("must be empty for a connection without TLS")})
	case !filepath.IsAbs(o.CA):
		all = append(all, Problem{"ca", fmt.Errorf("%q is not an absolute path", o.CA)})
	}
	return all
}
