module inferno.platform.ai/controlplane/keda

go 1.24.0

require github.com/kedacore/keda/v2 v2.19.0
