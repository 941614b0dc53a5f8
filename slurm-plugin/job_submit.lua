-- SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later
--[[
Kernel Broker's part in slurmctld: what a job that asks for a kernel profile
needs from Slurm.

The SPANK plugin kernel_profile hands the profile over in the job control
variable KERNEL_PROFILE. A job that has it gets:

  reboot = 1          its nodes are held back until they have booted
  shared = 0          whole nodes, since a kernel cannot be shared with others
  requeue = 1         a node that cannot switch sends the job back to the queue
  admin_comment       "kernel-broker: NAME requested", which squeue and
                      scontrol show; "; norequeue" is added when the user said
                      --no-requeue, which the broker honours once the kernel
                      is up

One that asks for profiling has KERNEL_PROFILING as well, with or without a
profile. Its collectors are added to the admin_comment, "; profiling=io,noise",
where the broker finds them; without a profile that is all that is done to it.

A job with neither is left exactly as it is. No job may name a reservation of
the broker's, which keeps nodes for another one.

slurmctld calls this under its locks: no files, no network, no programs. The
SPANK plugin has looked the name up; the broker authorises it when the job
starts. A site that has a job_submit.lua of its own can load this file with
dofile() and call kernel_broker.submit and kernel_broker.modify from there.
]]

kernel_broker = {}

local CONTROL = "KERNEL_PROFILE"
local OPTION = "_SLURM_SPANK_OPTION_kernel_profile_kernel_profile"
local PROFILING = "KERNEL_PROFILING"
local STOCK = "stock"

-- NO_VAL of the 16 bit fields, where an older slurmctld does not export it.
local NO_VAL16 = 0xfffe

-- Errors of Slurm whose text comes nearest; their numbers are the same from
-- 22.05 to 26.05: "Requested operation not supported on this system", "Job
-- dependency problem".
local NOT_SUPPORTED = 2036
local DEPENDENCY = 2038

local SHARED = {
	[1] = "--oversubscribe",
	[2] = "--exclusive=user",
	[3] = "--exclusive=mcs",
}

local function number_or(value, default)
	return type(value) == "number" and value or default
end

local function no_val16()
	return number_or(slurm.NO_VAL16, NO_VAL16)
end

-- Whether the user has set a 16 bit field of the job at all.
local function is_set(value)
	return type(value) == "number" and value ~= no_val16()
end

-- slurmctld's numbers are floating-point ones, and some Luas write 7.0 for 7.
local function id_text(id)
	return type(id) == "number" and string.format("%.0f", id) or tostring(id)
end

local function refuse(text)
	slurm.log_user("kernel-broker: %s", text)
	return slurm.ERROR
end

--[[
slurmctld 22.05 drops what is said to the user of a change, so that scontrol has
nothing but the error's own text; newer ones pass it on. slurmctld's log has it
in every version.
]]
local function refuse_change(job_rec, uid, code, text)
	slurm.log_info("kernel-broker: change of job %s by user %s refused: %s",
		id_text(job_rec.job_id), id_text(uid), text)
	refuse(text)
	return code
end

--[[
A name is 1 to 64 letters, digits, dots, underscores and dashes that begins and
ends with a letter or digit; a version is a positive number of up to 9 digits.
Returns the name, or nil.
]]
local function parse(value)
	local name, version = value:match("^([a-z0-9._-]+)@([1-9]%d*)$")
	if not name then
		name, version = value:match("^([a-z0-9._-]+)$"), ""
	end
	if not name or #name > 64 or #version > 9 then
		return nil
	end
	if not name:match("^[a-z0-9]") or not name:match("[a-z0-9]$") then
		return nil
	end
	return name
end

-- Calls take(name, value) for each NAME=VALUE of the job control environment.
local function each_control(job_desc, take)
	local env = job_desc.spank_job_env
	if type(env) ~= "table" then
		return
	end
	-- Slurm counts from 0 and leaves holes; pairs() finds them all.
	for _, entry in pairs(env) do
		if type(entry) == "string" then
			local name, value = entry:match("^([^=]+)=(.*)$")
			if name then
				-- A resubmitted job has the prologs' prefix.
				take(name:gsub("^SPANK_", "", 1), value)
			end
		end
	end
end

--[[
Returns the profile that the job asks for or nil, and an error or nil. The
broker's hook and the gate read KERNEL_PROFILE alone. Slurm's own variable for
the option is taken away by the plugin; somebody whose own plugin sets it gets
no other meaning by it, and no job.
]]
local function wanted(job_desc)
	local values, first, two, control, option = {}, nil, nil, nil, nil
	each_control(job_desc, function(name, value)
		if name ~= CONTROL and name ~= OPTION then
			return
		end
		control = control or name == CONTROL
		option = option or name == OPTION
		if first and first ~= value then
			two = true
		end
		first = first or value
		values[#values + 1] = value
	end)
	if option and not control then
		return nil, OPTION .. " is set without " .. CONTROL ..
			"; write --kernel-profile"
	end
	if two then
		table.sort(values)
		return nil, string.format(
			"one job has one kernel profile, and this one asks for %s",
			table.concat(values, " and "))
	end
	if not first then
		return nil, nil
	end
	local name = parse(first)
	if not name then
		return nil, string.format(
			"%q is not a kernel profile's name (NAME or NAME@VERSION)",
			first:sub(1, 80))
	end
	if name == STOCK then
		return nil, nil
	end
	return first, nil
end

local COLLECTORS = {
	io = true, syscalls = true, callgraph = true, noise = true, pgo = true,
}

--[[
Returns the collectors that the job asks for or nil, and an error or nil. The
plugin writes a list that is checked and sorted; a list from elsewhere that is
none would be somebody's text in the administrators' comment.
]]
local function collectors(job_desc)
	local list, problem
	each_control(job_desc, function(name, value)
		if name ~= PROFILING then
			return
		end
		if list and list ~= value then
			problem = "one job has one list of collectors"
		end
		list = value
	end)
	if not list then
		return nil, nil
	end
	for one in (list .. ","):gmatch("([^,]*),") do
		if not COLLECTORS[one] then
			problem = string.format("%q is not a list of collectors (io, " ..
				"syscalls, callgraph, noise, pgo)", list:sub(1, 80))
		end
	end
	return list, problem
end

-- Puts our words into the comment, before what was in it.
local function comment_on(job_desc, text)
	local before = job_desc.admin_comment
	if type(before) == "string" and before ~= "" then
		text = text .. " | " .. before
	end
	job_desc.admin_comment = text
end

-- The partitions the job may go to, as far as they are known by now.
local function each_partition(job_desc, part_list, take)
	if type(part_list) ~= "table" then
		return
	end
	local names = job_desc.partition
	for name, part in pairs(part_list) do
		if type(names) == "string" then
			for one in names:gmatch("[^,]+") do
				if one == name then
					take(name, part)
				end
			end
		elseif part.flag_default == 1 then
			take(name, part)
		end
	end
end

-- A partition with OverSubscribe=FORCE shares nodes whatever the job says.
local function forced_sharing(job_desc, part_list)
	local force = number_or(slurm.SHARED_FORCE, 0x8000)
	local found
	each_partition(job_desc, part_list, function(name, part)
		local share = number_or(part.max_share, 1)
		-- FORCE:1 runs one job at a time: nothing is shared.
		if share >= force and share - force > 1 then
			found = name
		end
	end)
	return found
end

--[[
The ids of the jobs whose nodes a job wants to be added to its own, from a list
of dependencies such as "afterok:5,expand:12_3".
]]
local function expands(job_desc)
	local ids, any = {}, false
	local list = job_desc.dependency
	if type(list) == "string" then
		for id in list:lower():gmatch("expand:(%d+)") do
			ids[tonumber(id)] = true
			any = true
		end
	end
	return any and ids or nil
end

--[[
Why a job cannot be merged into another one, or nil. Both must be plain: the
nodes of the one run another kernel than the nodes of the other. Slurm shows all
jobs here; an array's and a heterogeneous job's parts are all meant by its id.
]]
local function merge_problem(job_desc, profile)
	local ids = expands(job_desc)
	if not ids then
		return nil
	end
	if profile then
		return "the nodes of a job with a kernel profile cannot be added " ..
			"to another job's (--dependency=expand)"
	end
	for _, other in pairs(type(slurm.jobs) == "table" and slurm.jobs or {}) do
		if (ids[other.job_id] or ids[other.array_job_id] or
				ids[other.het_job_id]) and wanted(other) then
			return string.format("job %s has a kernel profile, and no nodes " ..
				"can be added to it (--dependency=expand)",
				id_text(other.job_id))
		end
	end
	return nil
end

-- Whether a job asks for nodes that the broker keeps for another one. The broker
-- itself asks for them in the name of no job's owner.
local KEPT = "^kernel%-broker%-"

local function asks_for_kept(job_desc)
	local names = job_desc.reservation
	if type(names) == "string" then
		for one in names:gmatch("[^,%s]+") do
			if one:match(KEPT) then
				return true
			end
		end
	end
	return false
end

local NOT_YOURS = "the reservations kernel-broker-* keep nodes for one job " ..
	"that waits; no other can be put into them"

function kernel_broker.submit(job_desc, part_list, submit_uid)
	if asks_for_kept(job_desc) then
		return refuse(NOT_YOURS)
	end
	local profile, problem = wanted(job_desc)
	problem = problem or merge_problem(job_desc, profile)
	local look
	if not problem then
		look, problem = collectors(job_desc)
	end
	if problem then
		return refuse(problem)
	end
	local profiling = look and "; profiling=" .. look or ""
	if not profile then
		if look then
			comment_on(job_desc, "kernel-broker: " .. STOCK ..
				" requested" .. profiling)
		end
		return slurm.SUCCESS
	end
	local shared = job_desc.shared
	if is_set(shared) and shared ~= 0 then
		return refuse(string.format(
			"a job with a kernel profile needs whole nodes; %s does not " ..
			"go with --kernel-profile=%s",
			SHARED[shared] or "sharing them", profile))
	end
	local partition = forced_sharing(job_desc, part_list)
	if partition then
		return refuse(string.format(
			"a job with a kernel profile needs whole nodes, but the " ..
			"partition %s always shares them (OverSubscribe=FORCE)",
			partition))
	end

	local comment = "kernel-broker: " .. profile .. " requested" .. profiling
	if is_set(job_desc.requeue) and job_desc.requeue == 0 then
		comment = comment .. "; norequeue"
	end
	comment_on(job_desc, comment)
	job_desc.reboot = 1
	job_desc.shared = 0
	job_desc.requeue = 1
	slurm.log_info("kernel-broker: job of user %s asks for kernel profile %s",
		id_text(submit_uid), profile)
	return slurm.SUCCESS
end

--[[
A change is refused only where it would break the promise that no job runs on a
kernel it did not ask for: sharing the nodes, and merging two jobs. Everything
else (time, partition, hold, requeue, priority) is the user's, but for the nodes
that are kept for another job. Whether the nodes are booted is not:
slurmctld lets only administrators change that, among them the broker, which does
so for a job whose nodes were kept for it.
]]
function kernel_broker.modify(job_desc, job_rec, part_list, modify_uid)
	if asks_for_kept(job_desc) and modify_uid ~= 0 and
		modify_uid == job_rec.user_id then
		return refuse_change(job_rec, modify_uid, NOT_SUPPORTED, NOT_YOURS)
	end
	local profile = wanted(job_rec)
	local problem = merge_problem(job_desc, profile)
	if problem then
		return refuse_change(job_rec, modify_uid, DEPENDENCY, problem)
	end
	if not profile then
		return slurm.SUCCESS
	end
	if is_set(job_desc.shared) and job_desc.shared ~= 0 then
		return refuse_change(job_rec, modify_uid, NOT_SUPPORTED,
			"a job with a kernel profile needs whole nodes: " ..
			"OverSubscribe cannot be turned on")
	end
	if type(job_desc.partition) == "string" then
		local partition = forced_sharing(job_desc, part_list)
		if partition then
			return refuse_change(job_rec, modify_uid, NOT_SUPPORTED,
				string.format("a job with a kernel profile needs whole " ..
				"nodes, but the partition %s always shares them " ..
				"(OverSubscribe=FORCE)", partition))
		end
	end
	return slurm.SUCCESS
end

function slurm_job_submit(job_desc, part_list, submit_uid)
	return kernel_broker.submit(job_desc, part_list, submit_uid)
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
	return kernel_broker.modify(job_desc, job_rec, part_list, modify_uid)
end

return slurm.SUCCESS
