#!/bin/sh
cd "$$(dirname "$$0")" && exec m2fdp $command $options "$$@"
