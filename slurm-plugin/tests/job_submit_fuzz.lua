-- SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later
-- Jobs made of pieces of what users may write, against job_submit.lua: whatever
-- a job asks for, the answer is one of two, and no text of the user's gets into
-- the administrators' comment. The same jobs each time. Prints TAP.

local here = arg[0]:match("^(.*)/[^/]*$") or "."
local rounds = tonumber(arg[1]) or 20000

slurm = {
	ERROR = -1, SUCCESS = 0,
	NO_VAL16 = 65534, SHARED_FORCE = 32768,
	log_user = function(...) return string.format(...) end,
	log_info = function(...) return string.format(...) end,
}
assert(dofile(here .. "/../job_submit.lua") == slurm.SUCCESS)
math.randomseed(1)

local names = { "KERNEL_PROFILE", "SPANK_KERNEL_PROFILE", "KERNEL_PROFILING",
	"SPANK_KERNEL_PROFILING", "SPANK_SPANK_KERNEL_PROFILE", "PATH", "", "=",
	"_SLURM_SPANK_OPTION_kernel_profile_kernel_profile" }
local pieces = { "a", "z", "0", "9", "_", "-", ".", "@", "1", "A", " ", "\n", "\0",
	"\255", "%", "%s", "%z", "|", ";", ",", "=", "/", "..", "stock", "mitgcm", "io",
	"noise", "requested", "kernel-broker: ", "profiling=", "norequeue",
	string.rep("x", 70) }
local others = { 0, 1, 2, 3, 65534, -1, "1", false }

local function any(list) return list[math.random(#list)] end

local function text()
	local out = {}
	for i = 1, math.random(0, 4) do out[i] = any(pieces) end
	return table.concat(out)
end

local function job()
	local desc = { shared = any(others), requeue = any(others), reboot = 65534 }
	desc.spank_job_env = math.random(20) > 1 and {} or any(others)
	if type(desc.spank_job_env) == "table" then
		for _ = 1, math.random(0, 3) do
			desc.spank_job_env[math.random(0, 5)] =
				math.random(9) > 1 and any(names) .. "=" .. text() or any(others)
		end
	end
	if math.random(3) == 1 then desc.admin_comment = "before" end
	if math.random(3) == 1 then desc.partition = text() end
	return desc
end

local lists = { "io", "syscalls", "callgraph", "noise", "pgo", "callcounts" }
local known = {}
for _, name in ipairs(lists) do known[name] = true end

-- What a comment of ours may look like, and nothing else.
local function proper(comment, before)
	local own = comment:gsub("; norequeue", "", 1)
	if before then
		if own:sub(1, #before + 3) ~= before .. " | " then return false end
		own = own:sub(#before + 4)
	end
	local profile, rest = own:match("^kernel%-broker: ([a-z0-9._@-]+) requested(.*)$")
	if not profile then return false end
	if rest == "" then return true end
	local list = rest:match("^; profiling=([a-z,]+)$")
	for one in ((list or "none") .. ","):gmatch("([^,]*),") do
		if not known[one] then return false end
	end
	return true
end

local accepted, refused, wrong = 0, 0, nil
for round = 1, rounds do
	local desc = job()
	local before, boot = desc.admin_comment, desc.reboot
	local fine, answer = pcall(slurm_job_submit, desc, {}, 1000)
	if not fine or (answer ~= slurm.SUCCESS and answer ~= slurm.ERROR) then
		wrong = wrong or ("job " .. round .. ": " .. tostring(answer))
	elseif answer == slurm.SUCCESS and desc.admin_comment ~= before then
		accepted = accepted + 1
		if not proper(desc.admin_comment, before) then
			wrong = wrong or ("job " .. round .. ": comment " ..
				string.format("%q", desc.admin_comment))
		end
	elseif desc.admin_comment ~= before or desc.reboot ~= boot then
		wrong = wrong or ("job " .. round .. " was changed without a word")
	else
		refused = refused + (answer == slurm.ERROR and 1 or 0)
	end
	fine, answer = pcall(slurm_job_modify, job(), job(), {}, 1000)
	if not fine then wrong = wrong or ("change " .. round .. ": " .. tostring(answer)) end
end

print((wrong and "not ok" or "ok") .. " 1 - " .. rounds .. " jobs of any kind")
if wrong then print("# " .. wrong) end
local both = accepted > rounds / 1000 and refused > rounds / 1000
print((both and "ok" or "not ok") .. " 2 - " .. accepted .. " of them are accepted, " ..
	refused .. " refused")
print("1..2")
os.exit(not wrong and both and 0 or 1)
