module github.com/kernelbroker/kernelbroker

go 1.26
