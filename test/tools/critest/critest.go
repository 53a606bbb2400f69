// Package critest keeps in this module's go.sum what critest, which is a test without a package that
// could be named as a tool, is built from.
package critest

import (
	_ "sigs.k8s.io/cri-tools/pkg/benchmark"
	_ "sigs.k8s.io/cri-tools/pkg/validate"
)
